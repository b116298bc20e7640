"""The status port, as the kubelet, Prometheus, operators and strangers see it: answered by the pod's Envoy, agentd or not."""
import collections
import contextlib
import gzip
import http.client
import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families

from . import mesh, probed
from .pod import ADMIN, HERE, STATUS
from .run import Process, wait_for

SOAK = os.environ.get('AGENTD_SOAK')
PAGE_MB, KILLS = (100, 20) if SOAK else (14, 4)
AGENT = 15020
READY, SCRAPE = '/healthz/ready', '/stats/prometheus'
TEXT = 'text/plain; version=0.0.4; charset=utf-8'


def probers(**routes):
    return json.dumps({f'/app-health/app-{name.replace("_", "-")}/livez': {'timeoutSeconds': 20, **kind} for name, kind in routes.items()})


def http_get(path, port=probed.HTTP, **more):
    return {'httpGet': {'path': path, 'port': port, **more}}


PROBERS = probers(
    ok=http_get('/ok?a=b'), no=http_get('/no'), moved=http_get('/moved'), slow={**http_get('/slow'), 'timeoutSeconds': 1}, long=http_get('/long'),
    down=http_get('/', 8099), https=http_get('/ok', probed.TLS, scheme='HTTPS'), no_tls=http_get('/ok', scheme='HTTPS'),
    grpc={'grpc': {'port': probed.GRPC}}, grpc_good={'grpc': {'port': probed.GRPC, 'service': 'good'}},
    grpc_bad={'grpc': {'port': probed.GRPC, 'service': 'x' * 200}}, grpc_down={'grpc': {'port': 8099}},
    tcp={'tcpSocket': {'port': probed.HTTP}}, tcp_down={'tcpSocket': {'port': 8099}})


class Asked:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


def ask(pod, path, method='GET', port=AGENT, host=None, source=None, **headers):
    """From inside the pod, or from `source`: an address there, or another pod."""
    other = source if hasattr(source, 'netns') else None
    host = host or (pod.ip if other else '127.0.0.1')
    with (other or pod).netns.inside():
        sock = socket.create_connection((host, port), 60, (source, 0) if source and not other else None)
    connection = http.client.HTTPConnection(host, port)
    connection.sock = sock
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host='Host' in headers, skip_accept_encoding=True)
        for key, value in headers.items():
            connection.putheader(key.replace('_', '-'), value)
        connection.endheaders()
        answer = connection.getresponse()
        return Asked(answer.status, answer.headers, answer.read())


def statuses(pod, paths, **kw):
    return {path: ask(pod, path, **kw).status for path in paths}


def start(node, resources=None, redirect=None, prepare=lambda pod: None, **env):
    pod = node.pod('web', env=env, **({'redirect': redirect} if redirect else {}))
    prepare(pod)
    node.istiod.set(pod.id, **(resources or {'clusters': [], 'listeners': []}))
    if not node.agentd.process:
        node.agentd.start()
    pod.app = Process(pod.netns.command(sys.executable, HERE / 'probed.py', pod.dir), pod.dir / 'app.log', pod.cgroup)
    pod.start_envoy()
    wait_for('the app', lambda: pod.netns.http(probed.HTTP, '/text')[0] == 200)
    return pod


def gone(node):
    """Broker and worker, as if for ever."""
    node.agentd.process.kill()


def scrape(*pages):
    """One target is an annotation of its own, more are a list."""
    listed = [{'port': str(port), 'path': path} for port, path in pages]
    return json.dumps({'scrape': 'true', **(listed[0] if len(listed) == 1 else {'targets': listed})})


def app(name, kind='livez'):
    return f'/app-health/app-{name}/{kind}'


@pytest.mark.parametrize('killed', [False, True], ids=['with', 'without'])
def test_everything_is_answered_with_agentd_and_without(node, killed):
    pod = start(node, ISTIO_KUBE_APP_PROBERS=PROBERS,
                ISTIO_PROMETHEUS_ANNOTATIONS=scrape((probed.HTTP, '/text'))).wait_ready()
    stranger = node.pod('stranger')
    wait_for('the first dial', lambda: ask(pod, app('tcp')).status == 200)
    if killed:
        gone(node)
    assert statuses(pod, (READY, SCRAPE, '/metrics'), source=stranger) == {READY: 200, SCRAPE: 200, '/metrics': 200}
    assert ask(pod, READY).body == b'' and ask(pod, READY, port=STATUS).status == 200
    found = {name: ask(pod, app(name), source=stranger).status for name in (
        'ok', 'no', 'moved', 'slow', 'long', 'down', 'https', 'no-tls', 'grpc', 'grpc-good', 'grpc-bad', 'grpc-down', 'tcp', 'tcp-down')}
    assert found == {'ok': 200, 'no': 503, 'moved': 200, 'slow': 500, 'long': 200, 'down': 500, 'https': 200, 'no-tls': 500,
                     'grpc': 200, 'grpc-good': 200, 'grpc-bad': 500, 'grpc-down': 500, 'tcp': 200, 'tcp-down': 500}
    assert ask(pod, app('moved')).body == b'' and ask(pod, app('no')).body == b'not yet'
    assert ask(pod, app('long')).body == b'x' * 10240
    nowhere = ('/', '//healthz/ready', '/healthz/ready/', '/healthz/ready/../../quitquitquit', '/healthz/./ready', '/healthz%2fready',
               '/stats', '/stats/prometheus/', '/config_dump', '/certs', app('ok') + '/', app('ok').replace('/app-', '//app-', 1),
               app('ok', 'readyz'), app('other'), '/app-health/%61pp-ok/livez', app('ok').replace('-ok', '%2dok'), '/%68ealthz/ready', '/healthz/ready;x', '/quitquitquit/', '//quitquitquit', '/drain%2fwait')
    assert statuses(pod, nowhere) == dict.fromkeys(nowhere, 404)
    assert ask(pod, f'http://127.0.0.1:15000{READY}').status == 200  # absolute form: the path is what counts
    assert ask(pod, 'http://127.0.0.1:15000/config_dump').status == 404


def test_what_the_app_sees_of_a_probe(node):
    pod = start(node, ISTIO_KUBE_APP_PROBERS=PROBERS).wait_ready()
    stranger = node.pod('stranger')

    def seen(**headers):
        return json.loads(ask(pod, app('ok') + '?injected=1', source=stranger, **headers).body[2:])
    assert seen(User_Agent='kube-probe/1.36') == {
        'peer': '127.0.0.6', 'method': 'GET', 'path': '/ok?a=b', 'host': f'{pod.ip}:{probed.HTTP}', 'user-agent': 'kube-probe/1.36'}
    assert seen(Host='foo:15020')['host'] == 'foo:8080' and seen(Host='foo')['host'] == 'foo' and seen(Host='foo:80')['host'] == 'foo:80'
    # No header moves the probe elsewhere, or shows what is Envoy's.
    hostile = seen(X='y', X_Envoy_Original_Dst_Host='127.0.0.1:15000', X_Envoy_Upstream_Rq_Timeout_Ms='1', X_Forwarded_Proto='z')
    assert hostile.keys() == {'peer', 'method', 'path', 'host', 'x'}
    assert ask(pod, app('ok'), 'POST').status == 200


def raw(pod, request, port=AGENT):
    with pod.netns.inside(), socket.create_connection((pod.ip, port), 60) as s:
        s.sendall(request)
        return status_of(s)


def test_no_body_goes_to_the_app(node):
    pod = start(node, ISTIO_KUBE_APP_PROBERS=PROBERS, ISTIO_PROMETHEUS_ANNOTATIONS=scrape((probed.HTTP, '/ok'))).wait_ready()
    bodies = {b'Content-Length: 4\r\n\r\nbody': '400', b'Content-Length: 4\r\n\r\n': '400', b'Content-Length: 0\r\n\r\n': '200',
              b'Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n': '400', b'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n': '400',
              b'\r\n': '200'}
    for path in app('ok'), SCRAPE, '/metrics':
        found = {body: raw(pod, f'GET {path} HTTP/1.1\r\nHost: a\r\n'.encode() + body) for body in bodies}
        assert found == bodies, path


def test_what_is_too_long_to_be_read(node):
    """An Accept of more than 1 KiB counts as none; a longer query is refused; 60 KiB of each cost next to nothing (test_work.py)."""
    pod = start(node, ISTIO_PROMETHEUS_ANNOTATIONS=scrape((probed.HTTP, '/ok'))).wait_ready()
    spaces = 'text/plain;' + ' ' * 50000 + 'x'
    page = ask(pod, SCRAPE, Accept=spaces, X_Prometheus_Scrape_Timeout_Seconds='1' * 5000 + 'x')
    assert page.status == 200 and json.loads(page.body[page.body.rindex(b'# {') + 2:])['accept'] == 'text/plain;version=0.0.4'
    assert ask(pod, SCRAPE + '?filter=' + 'x' * 1024).status == 414 and ask(pod, SCRAPE + '?filter=' + 'x' * 1000).status == 200


def test_who_may_command(node):
    pod = start(node).wait_ready()
    stranger = node.pod('stranger')
    commands = ('/quitquitquit', '/drain', '/drain/wait')
    for who in ({'source': stranger}, {'host': pod.ip}, {'source': '127.0.0.6'}, {'source': '127.0.0.2'},
                {'source': stranger, 'X_Forwarded_For': '127.0.0.1'}):
        for method in ('GET', 'POST'):
            assert statuses(pod, commands, method=method, **who) == dict.fromkeys(commands, 403), (who, method)
    assert [ask(pod, c, 'GET').status for c in commands[:2]] == [405, 405] and ask(pod, '/drain/wait', 'POST').status == 405
    assert ask(pod, '/drain', 'POST').body == b'OK' and ask(pod, READY).status == 200 and pod.envoy.running()
    quitted = ask(pod, '/quitquitquit', 'POST')
    assert (quitted.status, quitted.body) == (200, b'OK') and pod.envoy.wait() == 0


OWN6 = 'fd77::1'


def test_a_pod_of_ipv6(node):
    """The app is asked at the address that was asked here, from ::6; commands are for ::1."""
    def prepare(pod):
        pod.ip_version = 'v6'
        for address, device in (f'{OWN6}/64', 'eth0'), ('::6/128', 'lo'):  # the second one: as Istio's rules do
            pod.netns.ip('addr', 'add', address, 'dev', device, 'nodad')
    node.agentd.settings['ip_family'] = 'ipv6'
    pod = start(node, prepare=prepare, ISTIO_KUBE_APP_PROBERS=PROBERS, ISTIO_PROMETHEUS_ANNOTATIONS=scrape((probed.HTTP, '/text')))
    wait_for('Envoy', lambda: ask(pod, READY, host=OWN6).status == 200)
    wait_for('the first dial', lambda: ask(pod, app('tcp'), host='::1').status == 200)
    stranger = node.pod('stranger')
    stranger.netns.ip('addr', 'add', 'fd77::2/64', 'dev', 'eth0', 'nodad')
    from_outside = {'source': stranger, 'host': OWN6}
    assert of_app(ask(pod, SCRAPE, **from_outside)) == ['app_x']
    assert json.loads(ask(pod, app('ok'), **from_outside).body[2:]) == {
        'peer': '::6', 'method': 'GET', 'path': '/ok?a=b', 'host': f'[{OWN6}]:{probed.HTTP}'}
    found = statuses(pod, map(app, ('no', 'down', 'https', 'grpc-good', 'grpc-down', 'tcp-down')), **from_outside)
    assert list(found.values()) == [503, 500, 200, 200, 500, 500]
    for who in from_outside, {'host': '::1', 'source': '::6'}, {'host': OWN6}:
        assert ask(pod, '/quitquitquit', 'POST', **who).status == 403
    assert ask(pod, '/drain', 'POST', host='::1').body == b'OK'
    assert ask(pod, '/quitquitquit', 'POST', host='::1').body == b'OK' and pod.envoy.wait() == 0


def test_not_ready_until_both_came_and_why(node):
    """Envoy itself says LIVE when the first listeners were all refused; the pod is not ready, and says so."""
    pod = start(node, {'clusters': [], 'listeners': [mesh.BROKEN_LISTENER]})
    wait_for('the refusal', lambda: pod.netns.http(ADMIN, '/ready')[0] == 200)
    for port in (AGENT, STATUS):
        answer = ask(pod, READY, port=port)
        assert answer.status == 503 and b'rejected: cds updates: 1 successful, 0 rejected; lds updates: 0 successful' in answer.body
    node.istiod.set(pod.id, listeners=[])
    pod.wait_ready()


ASKS_BOTH = 'application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5'


def families(body):
    return {f.name.removesuffix('_total') for f in text_string_to_metric_families(body.decode())}


def of_app(answer):
    """As Prometheus' Python parser reads the page, Envoy's part of it being there."""
    found = families(answer.body)
    assert answer.status == 200 and any(f.startswith('envoy_') for f in found), answer.body[-300:]
    return sorted(f for f in found if f.startswith('app_'))


def use(pod, page):
    assert pod.netns.http(probed.HTTP, f'/use?{page}')[0] == 200


def test_a_page_of_every_kind(node):
    pod = start(node, ISTIO_PROMETHEUS_ANNOTATIONS=scrape((probed.HTTP, '/current'))).wait_ready()
    pages = {'/text': ['app_x'], '/gzip': ['app_gzip'], '/brotli': [], '/500': [], '/204': [], '/empty': [], '/empty-chunks': [],
             '/openmetrics': ['app_o'], '/nothing': []}
    for page, expected in pages.items():
        use(pod, page)
        answer = ask(pod, SCRAPE, Accept=ASKS_BOTH)
        assert of_app(answer) == expected, page
        assert answer.headers['content-type'] == (probed.OPENMETRICS if page == '/openmetrics' else TEXT), page
        assert answer.body.endswith(b'# EOF\n') == (page == '/openmetrics')
    head = ask(pod, SCRAPE, 'HEAD')
    assert head.status == 200 and head.body == b'' and ask(pod, SCRAPE, 'POST').status == 405
    zipped = ask(pod, SCRAPE, Accept_Encoding='gzip')
    assert zipped.headers['content-encoding'] == 'gzip' and b'envoy_' in gzip.decompress(zipped.body)
    use(pod, '/reset')
    with pytest.raises(http.client.IncompleteRead) as e:  # cut off, and seen to be
        ask(pod, SCRAPE)
    assert b'envoy_' in e.value.partial
    use(pod, '/endless')
    with pytest.raises(http.client.IncompleteRead) as e:  # so is what does not end in time
        ask(pod, SCRAPE, X_Prometheus_Scrape_Timeout_Seconds='6')
    assert probed.BLOCK in e.value.partial
    use(pod, f'/big?mb={PAGE_MB}')
    big = ask(pod, SCRAPE).body
    assert big.count(probed.BLOCK) == PAGE_MB * 2**20 // len(probed.BLOCK) and big.endswith(probed.BLOCK)
    use(pod, '/slow')
    assert of_app(ask(pod, SCRAPE, X_Prometheus_Scrape_Timeout_Seconds='5')) == []
    pod.app.kill()
    assert of_app(ask(pod, SCRAPE)) == []


def test_a_scrape_outlives_workers(node):
    """Nothing of a page passes through agentd."""
    pod = start(node, ISTIO_PROMETHEUS_ANNOTATIONS=scrape((probed.HTTP, '/parts'))).wait_ready()
    killed = []

    def kill_worker():
        killed.append(wait_for('another worker', lambda: (pid := node.agentd.worker_pid()) not in killed and pid))
        os.kill(killed[-1], 9)
        if len(killed) % 4 == 0:  # a broker lets each next one wait longer
            node.agentd.kill()
            node.agentd.start()
    with ThreadPoolExecutor(1) as thread:
        page = thread.submit(ask, pod, SCRAPE)
        for part in range(probed.PARTS):
            if part * KILLS % probed.PARTS < KILLS:
                kill_worker()
            assert not page.done() and pod.netns.http(probed.HTTP, '/permit')[0] == 200
        assert page.result().body.endswith(probed.PART * probed.PARTS)
    assert len(killed) == KILLS
    wait_for('a worker', lambda: node.agentd.ctl('status'))


def test_what_an_app_is_asked_by_a_scrape(node):
    pod = start(node, ISTIO_PROMETHEUS_ANNOTATIONS=scrape((probed.HTTP, '/ok'))).wait_ready()

    def seen(accept=None):
        page = ask(pod, SCRAPE, Authorization='secret', Cookie='c', X_Envoy_Upstream_Rq_Timeout_Ms='1', User_Agent='Prometheus/3',
                   X_Prometheus_Scrape_Timeout_Seconds='10.0', **({'Accept': accept} if accept else {})).body.decode()
        return json.loads(page[page.rindex('# {') + 2:])
    plain = 'text/plain;version=0.0.4'
    assert seen() == {'peer': '127.0.0.1', 'method': 'GET', 'path': '/ok', 'host': f'localhost:{probed.HTTP}', 'accept': plain,
                      'user-agent': 'Prometheus/3', 'x-prometheus-scrape-timeout-seconds': '10.0'}
    accepts = {
        'application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.3':
            plain + ';q=0.1',
        ASKS_BOTH: 'application/openmetrics-text;version=1.0.0;q=0.2,' + plain + ';q=0.1', '*/*': plain + ';q=0.1',
        'application/json': plain, ',;,': plain}
    assert {a: seen(a)['accept'] for a in accepts} == accepts


def test_several_targets(node):
    pod = start(node, ISTIO_PROMETHEUS_ANNOTATIONS=scrape(
        (probed.HTTP, '/current'), (8099, '/'), (probed.SECOND, '/openmetrics2'))).wait_ready()
    use(pod, '/openmetrics')
    both = ask(pod, SCRAPE)
    assert of_app(both) == ['app_o', 'app_p'] and both.headers['content-type'] == probed.OPENMETRICS
    assert both.body.count(b'# EOF') == 1 and both.body.endswith(b'# EOF\n')
    use(pod, '/second')  # which has no line's end
    mixed = ask(pod, SCRAPE)
    assert of_app(mixed) == ['app_p', 'app_second'] and mixed.headers['content-type'] == TEXT
    use(pod, '/big?mb=11')  # more than is held
    assert of_app(ask(pod, SCRAPE)) == ['app_p']


def at_once(pod, count, path):
    """Statuses of requests that all came before the first was answered; None: of a connection that was ended."""
    with contextlib.ExitStack() as held, pod.netns.inside():
        socks = [held.enter_context(socket.create_connection((pod.ip, AGENT), 60)) for _ in range(count)]
        for s in socks:
            s.sendall(f'GET {path} HTTP/1.1\r\nHost: a\r\n\r\n'.encode())
        return collections.Counter(map(status_of, socks))


def status_of(s):
    try:
        return s.recv(12).removeprefix(b'HTTP/1.1 ').decode() or None
    except ConnectionError:
        return None


def test_pace_and_connections(node):
    pod = start(node).wait_ready()
    assert at_once(pod, 60, SCRAPE + '?usedonly&filter=server.state').keys() == {'200', '429'}

    def taken():
        answered = 100 - at_once(pod, 100, READY)[None]
        assert answered <= 64
        return answered >= 60
    wait_for('those of before not to be counted any more', taken)
    wait_for('room', lambda: ask(pod, READY).status == 200)


def test_a_drain_waits_for_the_last_connection(node):
    """A request that came through Envoy is not broken; the drain is over when its connection is."""
    pod = start(node, mesh.PLAIN_SERVER, EXIT_ON_ZERO_ACTIVE_CONNECTIONS='true', MINIMUM_DRAIN_DURATION='0s').wait_ready()
    with pod.netns.inside():
        client = http.client.HTTPConnection('127.0.0.1', mesh.INBOUND, timeout=60)
        client.connect()
    with contextlib.closing(client):
        client.request('GET', '/held')
        wait_for('Envoy to count it', lambda: f'0.0.0.0_{mesh.INBOUND}.downstream_cx_active: 1' in pod.netns.http(
            ADMIN, '/stats?filter=downstream_cx_active')[1])
        answers = [ask(pod, '/drain/wait') for _ in range(5)]
        assert {(a.status, a.body) for a in answers} == {(503, b'draining')}
        assert ask(pod, READY).status == 200 and pod.netns.http(probed.HTTP, '/release')[0] == 200
        assert client.getresponse().read() == b'held'
    wait_for('the end of the drain', lambda: ask(pod, '/drain/wait').status == 200)
    assert pod.envoy.running()


def test_a_drain_takes_its_time(node):
    pod = start(node, PROXY_CONFIG='terminationDrainDuration: 1s').wait_ready()
    assert ask(pod, '/drain/wait').status == 503
    wait_for('the end of the drain', lambda: ask(pod, '/drain/wait').status == 200)
