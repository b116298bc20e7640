"""The kubelet's own probe packages ask a pod's app, past its Envoy (tests/real/parts/prober)."""
import json

from tests.e2e import mesh
from tests.e2e.run import Process, sh, wait_for
from tests.e2e.test_probes import POD6, probed  # noqa: F401  a fixture

from .programs import PROBER

COUNT = 20


def test_kubernetes_own_probes(probed):  # noqa: F811
    """Its packages ask apps at the pod's addresses alone, behind a real Envoy that lets in mTLS only."""
    p = probed()
    pod = p.node.pod('pod', redirect={'probe_ports': '8080,8443,8082'})
    pod.netns.ip('addr', 'add', f'{POD6}/64', 'dev', 'eth0', 'nodad')
    p.node.istiod.set(pod.id, **mesh.captured_server([]))
    log = pod.dir / 'prober.log'
    Process(pod.netns.command(PROBER, 'serve', pod.ip, POD6), log, pod.cgroup)
    wait_for('the apps', lambda: 'serving' in log.read_text())
    pod.wait_served().start_envoy()
    pod.wait_ready()

    def ask(place, kind, address, port, path='/ok'):
        return json.loads(place.call(sh, PROBER, 'probe', str(COUNT), kind, address, str(port), path))
    for address in pod.ip, POD6:
        for kind, port in ('http', 8080), ('https', 8443), ('tcp', 8080), ('grpc', 8082):
            assert ask(p.kubelet, kind, address, port) == {'success': COUNT}, (kind, address)
        assert ask(p.kubelet, 'http', address, 8080, '/redirect') == {'success': COUNT}
        assert ask(p.kubelet, 'http', address, 8080, '/down') == {'failure': COUNT}
        for kind, port in ('http', 8080), ('https', 8443):
            assert ask(p.host_pod, kind, address, port) == {'failure': COUNT}, 'Envoy wants a certificate'
    assert p.noted() == 0
