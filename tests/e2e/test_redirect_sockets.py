"""Programs with habits: under agentd's eBPF they see what they see under istio's iptables (ebpf-redirect.md 4, 10.7)."""
import pytest

from . import behaviours, cast, scene


@pytest.fixture
def sides(capturing):
    node = capturing()
    node.agentd.start()
    return scene.Captured(node), scene.Iptables(node)


def on_both(sides, function, *args):
    futures = [side.pod.submit(function, *args) for side in sides]
    return [f.result(120) for f in futures]


@pytest.mark.parametrize('redirect', [{}, {'redirect_dns': 'true'}, {'istio_service_cidr': '10.96.0.0/12,fd77::/64'}])
def test_habits(sides, redirect):
    for side in sides:
        side.configure(redirect)
    ebpf, iptables = on_both(sides, behaviours.all_of)
    different = {name: (seen, iptables[name]) for name, seen in ebpf.items() if seen != iptables[name]}
    assert not different, '\n'.join(f'{n}: eBPF {a}, iptables {b}' for n, (a, b) in different.items())
    refused = [name for name, seen in ebpf.items() if isinstance(seen, str)]
    assert refused == ([] if 'istio_service_cidr' in redirect else ['SO_BINDTODEVICE']), ebpf


def test_no_envoy(sides):
    """Refused, as the port is closed; a dial of the capture port itself is no dial of what was dialled before."""
    for side in sides:
        side.configure({})
        side.pod.call(cast.stop, 'envoy')
    rows = [('tcp', scene.APP, scene.APP, to, 80, None) for to in (scene.PEER, scene.SERVICE, scene.PEER6)]
    assert on_both(sides, cast.dial, rows) == [['ECONNREFUSED'] * 3] * 2
    assert [side.peer.call(cast.dial, [('tcp', 0, 0, scene.OWN, 8080, None)]) for side in sides] == [['ECONNREFUSED']] * 2


# --- what is different, and stays so (docs/ENVIRONMENT.md) ---
def test_what_only_iptables_does(sides):
    for side in sides:
        side.configure({})
    # The programs keep the original destination for Envoy's end of the connection.
    assert on_both(sides, behaviours.original_of_the_dialler) == [None, f'{scene.FAR}:80']
    # By whose real ids, not by whose effective ones: a set-uid program is its caller's.
    for ids, ports in (((scene.APP, scene.ENVOY), [15001, 80]), ((scene.ENVOY, scene.APP), [80, 15001])):
        assert on_both(sides, behaviours.dial_with_ids, *ids) == ports
    # The kernel lets no program give an address to a socket that has a port.
    assert on_both(sides, behaviours.names_of_own_port) == [
        [*2 * ['127.0.0.1'], f'{scene.PEER}:80'], [*2 * [scene.OWN], f'{scene.PEER}:80']]
    # A dial is sent to Envoy before the kernel looks for a way.
    for side in sides:
        side.pod.netns.ip('route', 'del', 'default')
    row = 'tcp', scene.APP, scene.APP, '203.0.113.9', 80, None
    (ebpf,), (iptables,) = on_both(sides, cast.dial, [row])
    assert ebpf['original'] == '203.0.113.9:80' and iptables == 'ENETUNREACH'
