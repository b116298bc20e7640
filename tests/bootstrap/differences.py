"""What is not as Istio's on purpose: paths in the bootstrap, and why."""

STATUS = 'the status port is Envoy\'s own: worker/envoy/status.h'
HTTP = '/filter_chains/0/filters/envoy.filters.network.http_connection_manager/typed_config'
ROUTES = f'{HTTP}/route_config/virtual_hosts/backend/routes'
TRUST = '.*/transport_socket/typed_config/common_tls_context/combined_validation_context/default_validation_context'
DIFFERENCES = {
    '/application_log_config/.*': 'the same format is on Envoy\'s command line (tests/helm/test_injection.py); both would be an error',
    '/bootstrap_extensions/envoy.bootstrap.internal_listener/typed_config/.*': 'the same message, not wrapped in a TypedStruct',
    '/dynamic_resources/ads_config/grpc_services/.*/retry_policy/.*': 'istiod is paced by agentd: back within 10 s of its last refusal',
    '/layered_runtime/.*/envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update': 'of a newer Istio (istio-agent.md 8.4)',
    '/layered_runtime/.*/envoy.reloadable_features.http_strip_fragment_from_path_unsafe_if_disabled': 'no Envoy here has this flag any more',
    '/layered_runtime/.*/envoy.resource_limits.listener.*_(15020|16020).connection_limit': STATUS,
    '/node/locality': 'an empty one is none',
    '/node/metadata/ENABLE_SELF_DISCOVERY': 'of a newer Istio: no bootstrap here has the local_cluster that it means, so istiod is not told',
    '/node/metadata/INTERCEPTION_MODE': 'what redirection really does, not what was asked for',
    '/node/metadata/ISTIO_VERSION': 'Istio\'s is the version of the test\'s program',
    '/static_resources/clusters/xds-grpc/.*max_requests_per_connection': 'the field that is not deprecated',
    '/static_resources/clusters/xds-grpc/upstream_connection_options/.*': 'keepalive of a unix socket has no meaning',
    '/static_resources/listeners/[^/]*_(15020|16020)/.*': STATUS,
    f'/static_resources/listeners/[^/]*_(15021|16021){ROUTES}/.*': STATUS,
    f'/static_resources/listeners/[^/]*_(15021|16021){HTTP}/http_filters/envoy.filters.http.lua/.*': STATUS,
    f'/static_resources/listeners/[^/]*_(15090|16090){ROUTES}/0/match/.*': 'an exact path: Envoy\'s admin has other pages below it',
    f'/static_resources/listeners/[^/]*_(15021|16021)/listener_filters/.*': 'the same filter by Envoy\'s own name for it',
    f'{TRUST}/match_(typed_)?subject_alt_names/.*': 'the field that is not deprecated; a name is of one of two kinds',
    '/node/metadata/PROXY_CONFIG/.*/tlsSettings(/mode)?': 'DISABLE is the default, written or not',
    '/node/metadata/LABELS/istio-locality': 'as the pod has it: istiod reads the node\'s locality',
}
