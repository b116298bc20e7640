/* machine_files.h - what `istioctl x workload entry configure --autoregister` writes, by
 * bare-metal-identity.md 1. */
#pragma once

#define CLUSTER_ENV                                                                                \
	"CANONICAL_REVISION='latest'\n"                                                            \
	"CANONICAL_SERVICE='web'\n"                                                                \
	"ISTIO_INBOUND_PORTS='*'\n"                                                                \
	"ISTIO_LOCAL_EXCLUDE_PORTS='22,15090,15021,15020'\n"                                       \
	"ISTIO_METAJSON_LABELS='{\"app\":\"web\",\"version\":\"v1\"}'\n"                           \
	"ISTIO_META_AUTO_REGISTER_GROUP='web'\n"                                                   \
	"ISTIO_META_CLUSTER_ID='Kubernetes'\n"                                                     \
	"ISTIO_META_DNS_CAPTURE='true'\n"                                                          \
	"ISTIO_META_MESH_ID='mesh1'\n"                                                             \
	"ISTIO_META_NETWORK='net1'\n"                                                              \
	"ISTIO_META_WORKLOAD_NAME='web'\n"                                                         \
	"ISTIO_NAMESPACE='vm'\n"                                                                   \
	"ISTIO_SERVICE='web.vm'\n"                                                                 \
	"ISTIO_SERVICE_CIDR='*'\n"                                                                 \
	"POD_NAMESPACE='vm'\n"                                                                     \
	"SERVICE_ACCOUNT='web-sa'\n"                                                               \
	"TRUST_DOMAIN='cluster.local'\n"

#define MESH_YAML                                                                                  \
	"defaultConfig:\n"                                                                         \
	"  discoveryAddress: istiod.istio-system.svc:15012\n"                                      \
	"  concurrency: 2\n"                                                                       \
	"  readinessProbe: {httpGet: {port: 8080}}\n"                                              \
	"  proxyMetadata:\n"                                                                       \
	"    ISTIO_META_MESH_ID: other\n"                                                          \
	"    ISTIO_META_POD_PORTS: '[]'\n"                                                         \
	"    SERVICE_ACCOUNT: web-sa\n"
