"""All that listens in a pod with its Envoy, and who reaches it (docs/SECURITY.md, "What listens in a pod")."""
import contextlib
import http.client

from . import mesh, probed
from .pod import ADMIN, STATS, STATUS
from .run import sh
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


def test_what_listens_and_who_reaches_it(capturing):
    """Each listener is counted, so that one more is noticed; by Envoy's passing on, nobody reaches what is the pod's own."""
    node = capturing()
    node.agentd.settings['dns_upstream'] = '127.0.0.1'
    pod = start(node, mesh.captured_plain(), ISTIO_META_DNS_CAPTURE='true').wait_ready()
    stranger = Bystander(node)
    node.pods.append(stranger)
    assert listening(pod, '-t') == OURS | ISTIODS | APPS
    assert listening(pod, '-u') == {(DNS, BOTH)}
    ready, page = {'/server_info': 404, SCRAPE: 404, '/quitquitquit': 404}, {'/server_info': 404, READY: 404, '/quitquitquit': 404}
    assert {port: pages(stranger, pod, port) for port, _ in OURS} == {
        ADMIN: {}, DNS: {}, STATUS: {**ready, READY: 200}, STATS: {**page, SCRAPE: 200},
        AGENT: {'/server_info': 404, READY: 200, SCRAPE: 200, '/quitquitquit': 403}}
    assert pod.envoy.running()
