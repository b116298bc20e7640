"""Envoy resources of two pods: a client whose local listener leads over mTLS to a server's inbound one.

    app of client -> 127.0.0.1:OUTBOUND -> Envoy -> mTLS -> Envoy at SERVER:INBOUND -> 127.0.0.1:8080
"""
OUTBOUND, INBOUND, APP = 8081, 8443, 8080
_TYPE = 'type.googleapis.com/envoy.extensions.'
TRUST_DOMAIN = 'cluster.local'


def spiffe(ns, sa, trust_domain=TRUST_DOMAIN):
    return f'spiffe://{trust_domain}/ns/{ns}/sa/{sa}'


def _names(pod, also=()):
    """Those that the pod's certificate may have: `also` are the mesh's other trust domains, as istiod sends them."""
    return [spiffe(pod.ns, pod.sa, td) for td in (TRUST_DOMAIN, *also)]


def sds(name, api_type='GRPC'):
    """A secret from agentd, asked for as istiod has Envoy ask (istio-agent.md 2.2)."""
    return {'name': name, 'sds_config': {
        'resource_api_version': 'V3', 'initial_fetch_timeout': '0s',
        'api_config_source': {'api_type': api_type, 'transport_api_version': 'V3',
                              'set_node_on_first_message_only': True,
                              'grpc_services': [{'envoy_grpc': {'cluster_name': 'sds-grpc'}}]}}}


def _tls(kind, peer, api_type, certificate='default', root='ROOTCA', **more):
    return {'name': 'envoy.transport_sockets.tls', 'typed_config': {
        '@type': f'{_TYPE}transport_sockets.tls.v3.{kind}TlsContext',
        'common_tls_context': {
            'tls_certificate_sds_secret_configs': [sds(certificate, api_type)],
            'combined_validation_context': {
                'default_validation_context': {'match_typed_subject_alt_names': [
                    {'san_type': 'URI', 'matcher': {'exact': p}} for p in peer]},
                'validation_context_sds_secret_config': sds(root, api_type)}},
        **more}}


def _hcm(name, cluster, **more):
    return {'filters': [{'name': 'envoy.filters.network.http_connection_manager', 'typed_config': {
        '@type': f'{_TYPE}filters.network.http_connection_manager.v3.HttpConnectionManager',
        'stat_prefix': name,
        'http_filters': [{'name': 'envoy.filters.http.router', 'typed_config': {
            '@type': f'{_TYPE}filters.http.router.v3.Router'}}],
        'route_config': {'name': name, 'virtual_hosts': [{
            'name': name, 'domains': ['*'],
            'routes': [{'match': {'prefix': '/'}, 'route': {'cluster': cluster, 'timeout': '30s'}}]}]},
        **more}}]}


def _socket(address, port):
    return {'socket_address': {'address': address, 'port_value': port}}


def _cluster(name, address, port, **more):
    return {'name': name, 'type': 'STATIC', 'connect_timeout': '10s', 'load_assignment': {
        'cluster_name': name,
        'endpoints': [{'lb_endpoints': [{'endpoint': {'address': _socket(address, port)}}]}]}, **more}


def _short(requests):
    return {'typed_extension_protocol_options': {
        'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
            '@type': f'{_TYPE}upstreams.http.v3.HttpProtocolOptions',
            'common_http_protocol_options': {'max_requests_per_connection': requests},
            'explicit_http_config': {'http_protocol_options': {}}}}}


def client(server, api_type='GRPC', requests_per_connection=10, eds=False, also=(), **tls):
    """What the client gets.  Connections are short, so that there are handshakes all the time."""
    options = {**_short(requests_per_connection),
               'transport_socket': _tls('Upstream', _names(server, also), api_type, **tls)}
    cluster = _cluster(server.name, server.ip, INBOUND, **options)
    resources = {'clusters': [cluster], 'listeners': [
        {'name': 'outbound', 'address': _socket('127.0.0.1', OUTBOUND),
         'filter_chains': [_hcm('outbound', server.name)]}]}
    if eds:
        resources['endpoints'] = [cluster.pop('load_assignment')]
        cluster.update(type='EDS', eds_cluster_config={
            'eds_config': {'ads': {}, 'resource_api_version': 'V3', 'initial_fetch_timeout': '0s'}})
    return resources


def server(client_pods, api_type='GRPC', **tls):
    """What the server gets: only these clients may come in, and the app is told which one it was."""
    chain = _hcm('inbound', 'app', forward_client_cert_details='SANITIZE_SET',
                 set_current_client_cert_details={'uri': True})
    chain['transport_socket'] = _tls('Downstream', [spiffe(p.ns, p.sa) for p in client_pods], api_type,
                                     require_client_certificate=True, **tls)
    return {'clusters': [_cluster('app', '127.0.0.1', APP)], 'listeners': [
        {'name': 'inbound', 'address': _socket('0.0.0.0', INBOUND), 'filter_chains': [chain]}]}


# Refused by Envoy, but for reasons that only Envoy knows: original_dst has a load balancer of its own.
BROKEN_CLUSTER = {'name': 'broken', 'type': 'ORIGINAL_DST', 'lb_policy': 'ROUND_ROBIN', 'connect_timeout': '1s'}


# --- traffic that comes to Envoy by itself: 15001 and 15006, as istiod has them ---
OUTBOUND_CAPTURE, INBOUND_CAPTURE = 15001, 15006
_ORIGINAL_DST, _TLS_INSPECTOR = ('original_dst', 'OriginalDst'), ('tls_inspector', 'TlsInspector')


def _listener(name, port, chains, *filters):
    return {'name': name, 'address': _socket('0.0.0.0', port), 'filter_chains': chains,
            'listener_filters': [{'name': f'envoy.filters.listener.{f}', 'typed_config': {
                '@type': f'{_TYPE}filters.listener.{f}.v3.{t}'}} for f, t in filters]}


def _original_dst(name, **more):
    return {'name': name, 'type': 'ORIGINAL_DST', 'lb_policy': 'CLUSTER_PROVIDED', 'connect_timeout': '10s', **more}


def _tcp(cluster):
    return {'filters': [{'name': 'envoy.filters.network.tcp_proxy', 'typed_config': {
        '@type': f'{_TYPE}filters.network.tcp_proxy.v3.TcpProxy', 'stat_prefix': cluster, 'cluster': cluster}}]}


def captured_client(server, requests_per_connection=0):
    """Whatever the pod dials at the server goes there over mTLS; the rest passes as it is.  0: as many as there are."""
    options = _short(requests_per_connection) if requests_per_connection else {}
    mtls = _original_dst('mtls', transport_socket=_tls('Upstream', [spiffe(server.ns, server.sa)], 'GRPC'), **options)
    inside = {**_hcm('outbound', 'mtls'), 'filter_chain_match': {
        'prefix_ranges': [{'address_prefix': server.ip, 'prefix_len': 32}]}}
    return {'clusters': [mtls, _original_dst('passthrough')], 'listeners': [
        _listener('virtualOutbound', OUTBOUND_CAPTURE, [inside, _tcp('passthrough')], _ORIGINAL_DST)]}


def captured_server(client_pods, also=()):
    """Only mTLS from these clients comes in, at whatever port; the app is dialled from 127.0.0.6."""
    chain = _hcm('inbound', 'app', forward_client_cert_details='SANITIZE_SET',
                 set_current_client_cert_details={'uri': True})
    chain['transport_socket'] = _tls('Downstream', [n for p in client_pods for n in _names(p, also)], 'GRPC',
                                     require_client_certificate=True)
    chain['filter_chain_match'] = {'transport_protocol': 'tls'}
    app = _original_dst('app', upstream_bind_config={'source_address': {'address': '127.0.0.6', 'port_value': 0}})
    return {'clusters': [app, _original_dst('passthrough')], 'listeners': [
        _listener('virtualInbound', INBOUND_CAPTURE, [chain], _ORIGINAL_DST, _TLS_INSPECTOR),
        _listener('virtualOutbound', OUTBOUND_CAPTURE, [_tcp('passthrough')], _ORIGINAL_DST)]}


def captured_plain():
    """Both ways everything goes through as it is."""
    app = _original_dst('app', upstream_bind_config={'source_address': {'address': '127.0.0.6', 'port_value': 0}})
    return {'clusters': [app, _original_dst('passthrough')], 'listeners': [
        _listener('virtualInbound', INBOUND_CAPTURE, [_tcp('app')], _ORIGINAL_DST),
        _listener('virtualOutbound', OUTBOUND_CAPTURE, [_tcp('passthrough')], _ORIGINAL_DST)]}


# A server without mTLS.
PLAIN_SERVER = {'clusters': [_cluster('app', '127.0.0.1', APP)], 'listeners': [_listener('plain', INBOUND, [_tcp('app')])]}


# --- filters that istiod sends by themselves (ECDS) ---
def _filter_type(layer, name, message):
    return f'{_TYPE}filters.{layer}.{name}.v3.{message}'


def _slot(layer, name, rbac):
    types = [_filter_type(layer, 'wasm', 'Wasm')] + ([_filter_type(layer, 'rbac', 'RBAC')] if rbac else [])
    return {'name': name, 'config_discovery': {
        'config_source': {'ads': {}, 'resource_api_version': 'V3', 'initial_fetch_timeout': '0s'}, 'type_urls': types}}


def extended(slots):
    """A server without mTLS, with a listener for each {port: (layer, name, does the slot take RBAC)}."""
    listeners = []
    for port, (layer, name, rbac) in slots.items():
        chain = _hcm('plain', 'app')
        filters = chain['filters'] if layer == 'network' else chain['filters'][0]['typed_config']['http_filters']
        filters.insert(0, _slot(layer, name, rbac))
        listeners.append(_listener(name, port, [chain]))
    return {'clusters': [_cluster('app', '127.0.0.1', APP)], 'listeners': listeners}


# What istiod adds to each plugin for its agent (status-listener.md 5).
PULL_SECRET = '{"auths":{"registry.example":{"auth":"b25seS10aGUtYWdlbnQ="}}}'
_FOR_THE_AGENT = {'ISTIO_META_WASM_IMAGE_PULL_SECRET': PULL_SECRET, 'ISTIO_META_WASM_IMAGE_PULL_POLICY': 'IfNotPresent',
                  'ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION': '4711'}
_NOT_FETCHED = {'remote': {'http_uri': {'uri': 'oci://registry.example/plugin:1', 'cluster': '_', 'timeout': '30s'}}}


def plugin(name, layer='http', opens=False, code=None, struct=None):
    """As istiod sends a WasmPlugin's; with `struct` in a TypedStruct of that type, as it sends an EnvoyFilter's."""
    config = {'config': {'name': name, 'failure_policy': 'FAIL_OPEN' if opens else 'FAIL_CLOSED', 'vm_config': {
        'runtime': 'envoy.wasm.runtime.v8', 'code': code or _NOT_FETCHED,
        'environment_variables': {'key_values': {'COLOUR': 'red', **_FOR_THE_AGENT}}}}}
    kind = _filter_type(layer, 'wasm', 'Wasm')
    typed = {'@type': f'type.googleapis.com/{struct}', 'type_url': kind, 'value': config} if struct else {'@type': kind, **config}
    return {'name': name, 'typed_config': typed}


def rbac(name, **rules):
    """Without rules all passes, with empty ones nothing."""
    return {'name': name, 'typed_config': {'@type': _filter_type('http', 'rbac', 'RBAC'), **rules}}


def watched():
    """A server without mTLS whose requests are traced, and told to the access log service."""
    chain = _hcm('plain', 'app', tracing={}, access_log=[{'name': 'als', 'typed_config': {
        '@type': f'{_TYPE}access_loggers.grpc.v3.HttpGrpcAccessLogConfig', 'common_config': {
            'log_name': 'requests', 'transport_api_version': 'V3', 'buffer_flush_interval': '0.1s',
            'grpc_service': {'envoy_grpc': {'cluster_name': 'envoy_accesslog_service'}}}}}])
    return {'clusters': [_cluster('app', '127.0.0.1', APP)], 'listeners': [_listener('plain', INBOUND, [chain])]}


# Refused by Envoy: two filter chains that mean the same connections.
BROKEN_LISTENER = _listener('broken', 8444, [_tcp('app'), _tcp('app')])


def never_warm(server):
    """A listener whose routes nobody sends and a cluster whose secret nobody sends, beside client()."""
    resources = client(server)
    waits = {'ads': {}, 'resource_api_version': 'V3', 'initial_fetch_timeout': '0s'}
    listener = {'name': 'no-routes', 'address': _socket('127.0.0.1', 8445), 'filter_chains': [_hcm('no-routes', 'app')]}
    manager = listener['filter_chains'][0]['filters'][0]['typed_config']
    del manager['route_config']
    manager['rds'] = {'route_config_name': 'none', 'config_source': waits}
    tls = {'name': 'envoy.transport_sockets.tls', 'typed_config': {'@type': f'{_TYPE}transport_sockets.tls.v3.UpstreamTlsContext',
           'common_tls_context': {'tls_certificate_sds_secret_configs': [{'name': 'none', 'sds_config': waits}]}}}
    resources['listeners'].append(listener)
    resources['clusters'].append(_cluster('no-secret', '127.0.0.1', 8446, transport_socket=tls))
    return resources
