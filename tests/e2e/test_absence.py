"""Broker and worker are away: what the kubelet, Prometheus, clients and hooks want of a pod comes from the kernel and its Envoy."""
import contextlib
import http.client
import os
import time

from . import mesh, probed as app, probers
from .run import wait_for
from .strangers import Place
from .test_probes import NODE, probed  # noqa: F401  a fixture
from .test_redirect import Bystander
from .test_status import AGENT, READY, SCRAPE, ask, of_app, scrape, start

AWAY_S, KUBELETS, PACE_S = 600 if os.environ.get('AGENTD_SOAK') else 0, 5, 0.5
PASSED_ON = '127.0.0.6'


def test_probes_scrapes_and_drains(probed):  # noqa: F811
    """The kubelet is started anew meanwhile, in other cgroups; a request through Envoy is not broken by the drain."""
    p = probed()
    pod = start(p.node, mesh.captured_plain(), {'probe_ports': str(app.HTTP)}, EXIT_ON_ZERO_ACTIVE_CONNECTIONS='true',
                MINIMUM_DRAIN_DURATION='0s', ISTIO_PROMETHEUS_ANNOTATIONS=scrape((app.HTTP, '/text'))).wait_ready()
    prometheus = Bystander(p.node, 'prometheus')
    p.node.pods.append(prometheus)
    client = held(prometheus, pod)
    p.node.agentd.kill()

    def ask_all(kubelet):
        assert kubelet.call(probers.peers, pod.ip, app.HTTP, 5) == {NODE: 5}
        assert p.host_pod.call(probers.peers, pod.ip, app.HTTP, 5) == {PASSED_ON: 5}
        for port in AGENT, 15021:
            assert ask(pod, READY, port=port, source=prometheus).status == 200
        assert of_app(ask(pod, SCRAPE, source=prometheus)) == ['app_x']
        drain = ask(pod, '/drain/wait')
        assert (drain.status, drain.body) == (503, b'draining')
    begun = time.monotonic()
    for n in range(KUBELETS):
        with Place(p.node.cgroup(f'kubelet{n}')) as kubelet:
            ask_all(kubelet)
            while time.monotonic() < begun + (n + 1) * AWAY_S / KUBELETS:
                time.sleep(PACE_S)
                ask_all(kubelet)
    assert p.noted() == 0
    assert pod.netns.http(app.HTTP, '/release')[0] == 200 and client.getresponse().read() == b'held'
    client.close()
    wait_for('the end of the drain', lambda: ask(pod, '/drain/wait').status == 200)
    assert ask(pod, '/quitquitquit', 'POST').status == 200 and pod.envoy.wait() == 0


def held(place, pod):
    """A request that the app has not answered, through the pod's Envoy."""
    client = http.client.HTTPConnection(pod.ip, app.SECOND, timeout=AWAY_S + 60)
    with place.netns.inside():
        client.connect()
    client.request('GET', '/held')
    wait_for('the app to have it', lambda: pod.netns.http(app.HTTP, '/holding')[1] == '1')
    return client
