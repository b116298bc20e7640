"""Pods: each key of ENVIRONMENT.md that shapes the bootstrap alone, then mixtures of them, always the same ones.

Not here, for Istio's own bootstrap of it is one that Envoy refuses: tcpKeepalive (a number becomes {"value": 3}), SIMPLE without
caCertificates (there is no validation context), a label `app` with a quote (the template writes it as it is).
"""
import json
import random

CLUSTERS = 'x', 'y.example', '192.0.2.7', '[2001:db8::7]'
TLS = ({}, {'mode': 'DISABLE'}, {'mode': 'ISTIO_MUTUAL'}, {'mode': 'ISTIO_MUTUAL', 'sni': 'a.example', 'subjectAltNames': ['spiffe://a']},
       {'mode': 'SIMPLE', 'caCertificates': '/etc/r.pem', 'sni': 'b'},
       {'mode': 'MUTUAL', 'clientCertificate': '/c.pem', 'privateKey': '/k.pem', 'caCertificates': '/r.pem'})
# Each: where it goes, its name, its values.
CHOICES = (
    *(('config', *c) for c in (
        ('tracing', [{'zipkin': {'address': f'{h}:9411'}} for h in CLUSTERS] + [{'datadog': {'address': '$(HOST_IP):8126'}}]
         + [{'zipkin': {'address': 'z:1'}, 'tlsSettings': t} for t in TLS] + [{'sampling': 10}]),
        ('statsdUdpAddress', ['192.0.2.1:8125']),
        ('envoyMetricsService', [{'address': 'm:1', 'tlsSettings': t} for t in TLS]),
        ('envoyAccessLogService', [{'address': f'{h}:9', 'tlsSettings': t} for h in CLUSTERS for t in TLS]),
        ('proxyStatsMatcher', [{'inclusionPrefixes': ['a', 'http.{pod_ip}_'], 'inclusionSuffixes': ['z'], 'inclusionRegexps': ['b.*c', '{pod_ip}\\d+']}]),
        ('extraStatTags', [['one', 'two', 'one']]),
        ('runtimeValues', [{'a.b': 'true', 'c': '7', 're2.max_program_size.error_level': ''}, {'overload.global_downstream_max_connections': '77'}]),
        ('proxyMetadata', [{'ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS': '99'}, {'METRICS_LOCALHOST_ACCESS_ONLY': 'true'}, {'ISTIO_META_X': '"\\'}]),
        ('tracingServiceName', ['APP_LABEL_AND_NAMESPACE', 'CANONICAL_NAME_ONLY', 'CANONICAL_NAME_AND_NAMESPACE']),
        ('serviceCluster', ['own']),
        ('statsCompression', [False, True]),
        ('proxyAdminPort', [16000]),
        ('statusPort', [16020]),
        ('drainDuration', ['7s']))),
    *(('env', *c) for c in (
        ('HOST_IP', ['192.0.2.9']),
        ('ISTIO_DELTA_XDS', ['false']),
        ('ENVOY_STATUS_PORT', ['16021']),
        ('ENVOY_PROMETHEUS_PORT', ['16090']),
        ('ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL', ['true']),
        ('EXIT_ON_ZERO_ACTIVE_CONNECTIONS', ['true']),
        ('HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED', ['false']),
        ('ISTIO_META_ENABLE_SELF_DISCOVERY', ['true']),
        ('ISTIO_DUAL_STACK', ['true']),
        ('ISTIO_META_WORKLOAD_NAME', ['wl']),
        ('ISTIO_META_LOAD_STATS_CONFIG_JSON', ['{"api_type": "GRPC", "transport_api_version": "V3"}']),
        ('ISTIO_METAJSON_X', ['{"a": {"b": [1, true, null]}}']))),
    *(('annotations', f'sidecar.istio.io/{c[0]}', c[1]) for c in (
        ('statsInclusionPrefixes', ['p1,p2.{pod_ip}']),
        ('statsInclusionSuffixes', ['s1']),
        ('statsInclusionRegexps', ['r.*']),
        ('extraStatTags', ['two,three']),
        ('statsHistogramBuckets', ['{"istio": [1, 2.5, 10], "cluster.xds-grpc": [5]}']),
        ('statsFlushInterval', ['10s']),
        ('statsEvictionInterval', ['20s']))),
    ('labels', 'app', ['shop']),
    ('labels', 'service.istio.io/canonical-name', ['canon']),
    ('labels', 'istio-locality', ['r.z.s', 'r']),
    ('pod', 'ips', [['192.0.2.5', '2001:db8::5'], ['2001:db8::5'], ['2001:db8::5', '192.0.2.5']]),
)
MIXTURES = 150
ONE_OF = 'tracingServiceName', 'serviceCluster'


def pod(*asked):
    made = {'env': {'POD_NAME': 'web-0', 'POD_NAMESPACE': 'demo', 'SERVICE_ACCOUNT': 'web'}, 'labels': {}, 'annotations': {},
            'ips': ['192.0.2.5']}
    config = {'discoveryAddress': 'istiod.istio-system.svc:15012'}
    for where, key, value in asked:
        {'config': config, 'pod': made}.get(where, made.get(where))[key] = value
    if all(key in config for key in ONE_OF):
        del config['serviceCluster']
    for key, value in config.get('proxyMetadata', {}).items():
        made['env'].setdefault(key, value)  # as the injector does
    return {**made, 'env': {**made['env'], 'PROXY_CONFIG': json.dumps(config)}}


def pods():
    yield pod()
    for where, key, values in CHOICES:
        yield from (pod((where, key, value)) for value in values)
    chance = random.Random(17)
    for _ in range(MIXTURES):
        some = chance.sample(CHOICES, chance.randint(2, 12))
        yield pod(*((where, key, chance.choice(values)) for where, key, values in some))
