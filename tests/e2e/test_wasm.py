"""Wasm filters of real Envoys: whose module nobody fetches, whose module Envoy fetches, and what istiod adds for an agent."""
import contextlib
import hashlib
import http.client
import http.server
import threading

import pytest

from . import mesh
from .pod import ADMIN
from .run import wait_for

MODULES = 8090  # where Envoy fetches a module
# It does nothing: memory, proxy_abi_version_0_2_1() and proxy_on_memory_allocate().
MODULE = (b'\0asm\1\0\0\0' b'\1\x09\2\x60\0\0\x60\1\x7f\1\x7f' b'\3\3\2\0\1' b'\5\3\1\0\1'
          b'\7\x3f\3\6memory\2\0\x17proxy_abi_version_0_2_1\0\0\x18proxy_on_memory_allocate\0\1'
          b'\x0a\x0a\2\2\0\x0b\5\0\x41\x80\x08\x0b')
ISTIOS, OLDER = 'extensions.istio.io/trafficextension/demo.', 'extenstions.istio.io/wasmplugin/demo.'
OPEN, CLOSED, TCP_OPEN, TCP_CLOSED = f'{ISTIOS}open', f'{OLDER}closed', f'{ISTIOS}tcp-open', f'{OLDER}tcp-closed'
UDPA, XDS = 'udpa.type.v1.TypedStruct', 'xds.type.v3.TypedStruct'
FETCHED = {'remote': {'http_uri': {'uri': f'http://127.0.0.1:{MODULES}/m', 'cluster': 'modules', 'timeout': '5s'},
                      'sha256': hashlib.sha256(MODULE).hexdigest()}}
# port: (its slot, what comes in it, what a request is answered)
FILTERS = {
    8501: (('http', OPEN, True), mesh.plugin(OPEN, opens=True), 200),
    8502: (('http', CLOSED, True), mesh.plugin(CLOSED), 403),
    8503: (('network', TCP_OPEN, True), mesh.plugin(TCP_OPEN, 'network', opens=True), 200),
    8504: (('network', TCP_CLOSED, True), mesh.plugin(TCP_CLOSED, 'network'), None),
    8505: (('http', 'a.open', False), mesh.plugin('a.open', opens=True, struct=UDPA), 200),
    8506: (('http', 'a.closed', False), mesh.plugin('a.closed', struct=XDS), 503),
    8507: (('network', 'a.tcp-open', False), mesh.plugin('a.tcp-open', 'network', opens=True), 200),
    8508: (('network', 'a.tcp-closed', False), mesh.plugin('a.tcp-closed', 'network', struct=UDPA), None),
    8509: (('http', 'a.fetched', False), mesh.plugin('a.fetched', code=FETCHED), 200),
    8510: (('http', 'a.fetched-too', False), mesh.plugin('a.fetched-too', code=FETCHED, struct=UDPA), 200),
    8511: (('http', 'a.denies', True), mesh.rbac('a.denies', rules={}), 403),
}
REPLACED = {slot[1] for slot, given, _ in FILTERS.values() if 'oci://' in str(given)}


@contextlib.contextmanager
def modules(pod):
    """An HTTP server in the pod that has MODULE."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header('content-length', str(len(MODULE)))
            self.end_headers()
            self.wfile.write(MODULE)

        def log_message(self, *_):
            pass
    with pod.netns.inside():
        server = http.server.ThreadingHTTPServer(('127.0.0.1', MODULES), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def answer(pod, port):
    """The status of a request; None: the connection was closed."""
    try:
        return pod.netns.http(port)[0]
    except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
        return None


def shown(pod):
    """What each page says of the filters, and what it ends with."""
    agentd = pod.node.agentd
    page = next(p for p in agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)
    xds = next(x['ads'] for x in agentd.ctl('xds')['xds'] if x['pod'] == pod.label)
    counts = [agentd.metric('agentd_xds_remote_wasm', 'pod="web"', f'policy="{p}"') for p in ('open', 'closed')]
    return xds['remote_wasm'], page.get('remote_wasm', {}), counts, [agentd.ctl_text(*words)[0] for words in (('status',), ('xds', pod.label))], page['ready']


def nacks(pod):
    return [r for r in pod.node.istiod.journal('request', kind='nack') if r['type'].endswith('TypedExtensionConfig')]


@pytest.mark.parametrize('delta', ['false', 'true'], ids=['sotw', 'delta'])
def test_each_slot_gets_what_envoy_takes(node, delta):
    pod = node.pod('web', env={'ISTIO_DELTA_XDS': delta})
    pod.drain_s = 1  # for so long Envoy asks for the filters of a listener that is gone
    extensions = [given for _, given, _ in FILTERS.values()]
    resources = mesh.extended({port: slot for port, (slot, _, _) in FILTERS.items()})
    resources['clusters'].append(mesh._cluster('modules', '127.0.0.1', MODULES))
    node.istiod.set(pod.id, **resources, extensions=extensions)
    node.agentd.start()
    pod.start_app()
    with modules(pod):
        pod.start_envoy().wait_ready()
        for port, (slot, _, expected) in FILTERS.items():
            assert answer(pod, port) == expected, slot
    assert not nacks(pod)

    # Each page says it.
    rows, same, counts, statuses, ready = shown(pod)
    assert rows.keys() == REPLACED and rows == same and counts == [4, 4] and statuses == [1, 1] and not ready
    assert rows[OPEN] == 'its module is remote, and agentd fetches none: traffic passes without the filter (FAIL_OPEN)'
    assert rows[CLOSED] == 'its module is remote, and agentd fetches none: no traffic passes'
    for noun in ('xds', 'pods'):
        assert f'{OPEN}: {rows[OPEN]}' in node.agentd.ctl_text(noun, pod.label)[1]

    # What Envoy refuses it prints, and tells istiod: without the secret.
    absent = mesh.plugin(CLOSED, code={'local': {'filename': '/absent.wasm'}})
    node.istiod.set(pod.id, extensions=[absent])
    told = wait_for('a NACK', lambda: nacks(pod))
    assert 'absent.wasm' in told[0]['error']
    dump = pod.netns.http(ADMIN, '/config_dump')[1]
    assert 'COLOUR' in dump  # of what passed, all but istiod's keys
    for text in (dump, pod.envoy.log.read_text(), str(told)):
        assert 'ISTIO_META_WASM' not in text and 'b25seS10aGUtYWdlbnQ' not in text
    assert not node.leaks(['b25seS10aGUtYWdlbnQ'])

    # It is over when Envoy does not ask any more; istiod never says that an extension is gone.
    node.istiod.set(pod.id, extensions=extensions)
    wait_for('all of them again', lambda: shown(pod)[0].keys() == REPLACED)
    node.istiod.set(pod.id, **mesh.PLAIN_SERVER)
    wait_for('no filter to be named', lambda: shown(pod) == ({}, {}, [0, 0], [0, 0], True))
