"""The metrics port: what a Prometheus anywhere on the network sees, and what a stranger there does not."""
import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families

from . import mesh
from .conftest import start_pair
from .netns import free_port
from .run import TOP, wait_for
from .test_upgrade import beside, hanging, launch, upgraded

# ecosystem.md 5: of the node, and with pilot-agent's names of each pod.
OF_NODE = {'agentd_pods', 'agentd_certificates_cached', 'agentd_certificate_cache_hits', 'agentd_csr_requests',
           'agentd_sds_streams', 'agentd_xds_streams', 'agentd_redirect_problems', 'agentd_event_loop_lag_seconds', 'agentd_build_info',
           'process_resident_memory_bytes', 'process_open_fds', 'agentd_broker_silent_seconds', 'agentd_log_dropped',
           'agentd_push_memory_bytes', 'agentd_push_waiting_streams', 'agentd_push_unbounded_streams'}
OF_POD = {'istio_agent_cert_expiry_seconds', 'istio_agent_xds_proxy_requests', 'istio_agent_xds_proxy_responses'}
ISTIOS = {'istio_agent_num_outgoing_requests'}


class Port:
    """agentd's, on 127.0.0.1."""

    def __init__(self, node):
        self.address = '127.0.0.1', free_port()
        node.agentd.flags += ['--metrics', '{}:{}'.format(*self.address)]

    def dial(self):
        return socket.create_connection(self.address, 60)

    def ask(self, path, method='GET', version='1.1'):
        """(status, head, body); the server ends the connection."""
        with self.dial() as s:
            s.sendall(f'{method} {path} HTTP/{version}\r\nHost: a\r\nUser-Agent: Prometheus/3.7.0\r\n\r\n'.encode())
            answer = b''.join(iter(lambda: s.recv(1 << 16), b'')).decode()
        head, _, body = answer.partition('\r\n\r\n')
        if method == 'HEAD':
            assert not body and re.search('\r\nContent-Length: [1-9]', head)
        else:
            assert f'\r\nContent-Length: {len(body.encode())}\r\n' in f'{head}\r\n'
        return int(head.split()[1]), head, body

    def healthy(self):
        return self.ask('/healthz')[0] == 200

    def scrape(self):
        """Families by name, as Prometheus' parser reads the page; no sample is there twice."""
        status, head, body = self.ask('/metrics')
        assert status == 200 and '\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n' in head
        families = list(text_string_to_metric_families(body))
        samples = [(s.name, tuple(sorted(s.labels.items()))) for f in families for s in f.samples]
        assert len(set(samples)) == len(samples) and body.endswith('\n')
        assert all(f.documentation and f.samples for f in families)
        return {f.name: f for f in families}


def values(families, name, **labels):
    return [s.value for s in families[name].samples if labels.items() <= s.labels.items()]


@pytest.fixture(name='port')
def fixture_port(node):
    return Port(node)


def test_a_page_with_pods_in_every_state(node, port):
    """Served, refused, without a token, with one that has expired."""
    envoy = node.pod('served', env={'PROXY_CONFIG': '{}', 'DNS_PROXY_ADDR': '127.0.0.1:5'})
    node.istiod.set(envoy.id, **mesh.server([envoy]))
    tokenless = node.pod('tokenless')
    tokenless.remove_token()
    node.pod('refused').write_manifest(env={'SECRET_TTL': '400h'})
    node.pod('expired').write_token(ttl=-100)
    node.agentd.start()
    envoy.wait_served().start_envoy()
    envoy.wait_ready()
    wait_for('the pods', lambda: len(node.agentd.ctl('pods')['pods']) == 4)

    def settled():
        page = port.scrape()
        return page if sum(s.value for s in page['agentd_pods'].samples) == 4 and \
            values(page, 'agentd_xds_streams') == [1] and values(page, 'agentd_sds_streams') > [0] else None
    page = wait_for('the streams', settled)
    assert (OF_NODE | OF_POD | ISTIOS) - set(page) == set()
    assert {name for name in page if not name.startswith(('agentd_', 'istio_agent_', 'process_'))} == set()
    shown = node.agentd.ctl('pods')['pods']
    assert values(page, 'agentd_pods', state='ready') == [sum(p['ready'] for p in shown)]
    for name in OF_POD:
        assert values(page, name, pod='served', namespace='demo'), name
    assert values(page, 'istio_agent_cert_expiry_seconds', pod='served', resource_name='default')[0] > 0
    assert values(page, 'agentd_csr_requests', result='OK') == [1]
    # METRICS.md has them all, with their labels; what never happened is 0 and not missing.
    rows = dict(re.findall(r'^\| `(\w+)` \| \w+ \| (.*?) \|', (TOP / 'docs/METRICS.md').read_text(), re.M))
    for family in page.values():
        documented = rows[family.name if family.name in rows else f'{family.name}_total']
        assert {', '.join(k for k in s.labels if k != 'le') for s in family.samples} == {documented}, family.name
    assert values(page, 'agentd_csr_requests', result='UNAVAILABLE') == values(page, 'agentd_connections_refused', reason='cgroup') == [0]
    assert values(page, 'agentd_limit_hits', limit='frames') == [0]
    assert [s.value for s in page['agentd_pod_unsupported_keys'].samples if s.value] == [1]
    assert '1 unsupported' in node.agentd.ctl_text('pods')[1]
    assert len(re.findall('demo/served.*unsupported keys of its environment: DNS_PROXY_ADDR', node.agentd.log.read_text())) == 1
    assert values(page, 'istio_agent_istiod_connection_failures', pod='served') == [0]
    assert values(page, 'agentd_control_plane_connected', control_plane='istiod') == [1]
    for name in ('agentd_csr_seconds', 'agentd_stream_open_seconds', 'agentd_push_seconds'):
        assert [s.value for s in page[name].samples if s.name.endswith('_count')][0] >= 1, name
    assert not [s for f in page.values() for s in f.samples for v in s.labels.values() if ' ' in v], 'a label is a word'
    assert not [s for f in page.values() for s in f.samples if 'eyJ' in str(s.labels) or 'BEGIN' in str(s.labels)]


def test_a_stranger_finds_nothing_else(node, port):
    pod = node.pod('web')
    node.agentd.start()
    pod.wait_served()
    wait_for('health', port.healthy)
    before = node.agentd.ctl('log')
    for page in ('', 'status', 'pods', 'certs', 'xds', 'version', 'logging', 'logging?level=debug', 'redirect', 'dns',
                 'metrics/', 'healthz/ready', './metrics', '/metrics', '%6detrics', 'quitquitquit'):
        assert port.ask(f'/{page}')[0] == 404, page
    for method in ('POST', 'PUT', 'DELETE', 'OPTIONS'):
        status, head, _ = port.ask('/logging?level=error', method)
        assert status == 405 and '\r\nAllow: GET' in head
    assert [port.ask(f'/{page}', 'HEAD')[0] for page in ('metrics', 'healthz', 'status')] == [200, 200, 404]
    assert port.ask('/metrics', version='2.0')[0] == 400
    assert port.ask('/metrics', version='1.0')[0] == 200
    assert node.agentd.ctl('log') == before
    for bytes_ in (b'\0' * 9000, b'GET /' + b'a' * 9000, b'\x16\x03\x01\r\n\r\n', b'GET /metrics\0 HTTP/1.1\r\n\r\n',
                   b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', b'\r\n' * 4000):
        with port.dial() as s, contextlib.suppress(ConnectionResetError):
            s.sendall(bytes_)
            assert s.recv(12) in (b'HTTP/1.1 400', b'HTTP/1.1 431')
    assert port.scrape()


def is_ended(s):
    """By the other end."""
    s.setblocking(False)
    try:
        return s.recv(1) == b''
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_a_hundred_idle_connections_stop_no_scrape(node, port):
    node.agentd.start()
    with contextlib.ExitStack() as idle:
        sockets = [idle.enter_context(port.dial()) for _ in range(100)]
        for s in sockets:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                s.sendall(b'GET /met')
        # The oldest made room; the others were not waited for, until their time would be over.
        assert port.healthy() and is_ended(sockets[0]) and not is_ended(sockets[-1])
        with ThreadPoolExecutor(8) as many:
            assert all(many.map(lambda _: port.healthy(), range(16)))
        assert port.scrape()
        # Who was idle is who went: not more than the limit is open.
        assert values(port.scrape(), 'process_open_fds')[0] < 100


def test_it_stays_through_a_worker_and_an_upgrade(node, port):
    client, _ = start_pair(node)
    load = client.load(mesh.OUTBOUND)

    def worker_killed():
        worker = node.agentd.worker_pid()
        os.kill(worker, signal.SIGSTOP)  # whoever comes now comes into the backlog
        with port.dial() as waiting:
            waiting.sendall(b'GET /healthz HTTP/1.1\r\n\r\n')
            os.kill(worker, signal.SIGKILL)
            assert waiting.recv(1 << 16).startswith((b'HTTP/1.1 200 ', b'HTTP/1.1 503 '))
        wait_for('health', port.healthy)

    def listener():
        with open('/proc/net/tcp', encoding='ascii') as f:
            return next(line.split()[9] for line in f if f'0100007F:{port.address[1]:04X} 00000000:0000 0A' in line)
    before = listener()
    for act in (worker_killed, worker_killed, lambda: upgraded(node.agentd), worker_killed):
        act()
        wait_for('both pods', lambda: values(port.scrape(), 'agentd_pods', state='ready') == [2])
        assert not any(s.value for s in port.scrape()['agentd_csr_requests'].samples)  # their certificates were kept
        assert listener() == before
    load.more(10)
    assert load.stop()['failed'] == 0


def test_a_hand_over_to_another_address_and_back(node, port):
    """The same port, which two sockets cannot have; and the new one fails, so the old one has it again."""
    node.agentd.start()
    old, new = node.agentd, beside(node, 'new')
    node.agentd, new.flags[1:] = new, ['--metrics', f'[::]:{port.address[1]}']
    new.start()
    assert old.process.wait() == 0
    wait_for('health', port.healthy)
    with socket.create_connection(('::1', port.address[1])):
        pass
    failing = beside(node, 'failing')
    failing.flags += ['--metrics', '{}:{}'.format(*port.address), '--csr-per-second', '0']
    assert launch(failing).wait() != 0
    wait_for('health', port.healthy)
    with socket.create_connection(('::1', port.address[1])):
        pass
    # Its worker, which has a copy of the socket, lives a little longer than it.
    killed = hanging(node, 'killed')
    killed.flags += ['--metrics', '{}:{}'.format(*port.address)]
    process = launch(killed)
    wait_for('its worker', lambda: ', worker ' in killed.log.read_text())
    process.kill()
    wait_for('health', port.healthy)
    with socket.create_connection(('::1', port.address[1])):
        pass


def test_a_port_that_is_taken_is_an_error_at_the_start(node, port):
    with socket.create_server(port.address), pytest.raises(RuntimeError, match='--metrics .*Address already in use'):
        node.agentd.start()
    node.agentd.start()
    assert wait_for('health', port.healthy)
    address = '{}:{}'.format(*port.address)
    assert f'metrics                {address}: another listener has it' in check(node, '--metrics', address)
    assert 'PROBLEM  metrics                --metrics 192.0.2.1:15091: ' + os.strerror(errno.EADDRNOTAVAIL) in check(
        node, '--metrics', '192.0.2.1:15091')


def check(node, *flags):
    a = node.agentd
    return subprocess.run([*a.program('agentd'), '--check', '--run', a.run, '--config', a.dir / 'agentd.yaml', *flags],
                          text=True, capture_output=True, timeout=60, check=False, env=a.environment()).stdout
