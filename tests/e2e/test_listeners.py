"""All that listens in a pod with its Envoy, and who reaches it (docs/SECURITY.md, "What listens in a pod")."""
import contextlib
import http.client

import pytest

from . import mesh, probed
from .pod import ADMIN, STATS, STATUS
from .run import sh, wait_for
from .test_redirect import Bystander
from .test_status import AGENT, READY, SCRAPE, ask, start

ANYBODY, POD, BOTH = '0.0.0.0', '127.0.0.1', '*'  # BOTH: agentd answers the loopback alone
DNS = 15053
OURS = {(ADMIN, POD), (AGENT, ANYBODY), (STATUS, ANYBODY), (STATS, ANYBODY), (DNS, BOTH)}
ISTIODS = {(mesh.OUTBOUND_CAPTURE, ANYBODY), (mesh.INBOUND_CAPTURE, ANYBODY)}
APPS = {(port, BOTH) for port in (probed.HTTP, probed.SECOND, probed.TLS, probed.GRPC)}


def listening(pod, kind):
    """{(port, address)}"""
    lines = sh(*pod.netns.command('ss', '-Hln', kind)).splitlines()
    found = (line.split()[3].rpartition(':') for line in lines)
    return {(int(port), address) for address, _, port in found}


def pages(place, pod, port):
    """Statuses of what may be there."""
    told = {}
    for path in '/server_info', READY, SCRAPE, '/quitquitquit':
        with contextlib.suppress(OSError, http.client.HTTPException):
            told[path] = ask(pod, path, port=port, source=place).status
    return told


@pytest.mark.parametrize('local', [False, True], ids=['metrics for all', 'metrics for the pod'])
def test_what_listens_and_who_reaches_it(capturing, local):
    """Each listener is counted, so that one more is noticed; by Envoy's passing on, nobody reaches what is the pod's own."""
    node = capturing()
    node.agentd.settings['dns_upstream'] = '127.0.0.1'
    pod = start(node, mesh.captured_plain(), ISTIO_META_DNS_CAPTURE='true', METRICS_LOCALHOST_ACCESS_ONLY=str(local).lower()).wait_ready()
    stranger = Bystander(node)
    node.pods.append(stranger)
    ours = OURS - {(STATS, ANYBODY)} | {(STATS, POD)} if local else OURS
    for kind, expected in ('-t', ours | ISTIODS | APPS), ('-u', {(DNS, BOTH)}):
        wait_for('each to listen', lambda k=kind, e=expected: e <= listening(pod, k))
        assert listening(pod, kind) == expected
    nothing = {'/server_info': 404, READY: 404, SCRAPE: 404, '/quitquitquit': 404}
    metrics = 403 if local else 200
    assert {port: pages(stranger, pod, port) for port, _ in OURS} == {
        ADMIN: {}, DNS: {}, STATUS: {**nothing, READY: 200}, STATS: {} if local else {**nothing, SCRAPE: 200},
        AGENT: {**nothing, READY: 200, SCRAPE: metrics, '/quitquitquit': 403}}
    assert pod.netns.http(STATS, SCRAPE)[0] == 200 and pod.envoy.running()


def test_a_first_envoy_listens_on_both_families(node):
    """Its pod's addresses are not known when its bootstrap is written; without any IPv6 there it runs all the same."""
    node.agentd.start()
    both, old = (node.pod(name, env={'ISTIO_DUAL_STACK': 'true', 'METRICS_LOCALHOST_ACCESS_ONLY': local})
                 for name, local in (('both', 'false'), ('old', 'true')))
    both.netns.ip('addr', 'add', 'fd00:77::1/64', 'dev', 'eth0', 'nodad')
    sh(*old.netns.command('sysctl', '-qw', 'net.ipv6.conf.all.disable_ipv6=1'))
    for pod in both, old:
        pod.start_envoy().wait_ready()
    for port in AGENT, STATUS:
        assert both.netns.http(port, READY, host='fd00:77::1')[0] == both.netns.http(port, READY, host=both.ip)[0] == 200
    assert both.netns.http(STATS, SCRAPE, host='fd00:77::1')[0] == 200
    assert old.netns.http(STATS, SCRAPE)[0] == 200
