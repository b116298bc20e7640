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


def test_the_dialler_has_no_original_destination(sides):
    """The one thing only iptables answers: the programs keep it for Envoy's end (ebpf-redirect.md 4, c)."""
    for side in sides:
        side.configure({})
    assert on_both(sides, behaviours.original_of_the_dialler) == [None, f'{scene.FAR}:80']
