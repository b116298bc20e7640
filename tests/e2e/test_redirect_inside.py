"""Network namespaces inside a pod (docker in docker, buildkit, `unshare -Urn`): nobody's traffic, while the pod's Envoy listens
in the pod's own one; never a sandbox that is made anew."""
import ctypes
import json
import os
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from . import sockets
from .netns import Netns
from .run import PATIENCE_S, sh
from .test_redirect import APP, ENVOY, Bystander, live, serve

'user'.encode('idna')  # connect() wants it, and who is no root here may not read Python's own files
NEWUSER, NEWNET = 0x10000000, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
NOT_OUT = 'ConnectionRefusedError'


class Inside:
    """As docker makes it: a cable to the pod's own network namespace, which forwards; processes of the pod's cgroup."""

    def __init__(self, pod, number):
        self.cgroup, self.dir, self.tokens = pod.cgroup, pod.dir, []
        self.netns = Netns(f'{pod.netns.name}.{number}')
        self.ip, gateway = f'172.30.{number}.2', f'172.30.{number}.1'
        pod.netns.ip('link', 'add', f'in{number}', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', self.netns.name)
        pod.netns.ip('addr', 'add', f'{gateway}/24', 'dev', f'in{number}')
        pod.netns.ip('link', 'set', f'in{number}', 'up')
        self.netns.ip('addr', 'add', f'{self.ip}/24', 'dev', 'eth0')
        self.netns.ip('link', 'set', 'eth0', 'up')
        self.netns.ip('route', 'add', 'default', 'via', gateway)
        sh(*pod.netns.command('sysctl', '-qw', 'net.ipv4.ip_forward=1'))

    def call(self, function, *args):
        return self.netns.submit(self.cgroup, function, *args).result(60)

    def remove(self):
        self.netns.remove()


@pytest.fixture
def scene(capturing):
    """A strict pod that is served and not live, its app, a host beside it, and a maker of namespaces in the pod."""
    node = capturing()
    node.agentd.start()
    pod = node.pod('pod').wait_served()
    peer = Bystander(node)
    made = []

    def inside():
        made.append(Inside(pod, len(made)))
        peer.netns.ip('route', 'replace', '172.30.0.0/16', 'via', pod.ip)
        node.pods.append(SimpleNamespace(remove=made[-1].remove, tokens=[]))
        return made[-1]
    node.pods.append(peer)
    serve(peer, 0, 80)
    return node, pod, peer, inside


def port(place, to, at=80):
    """Of the listener that answered, or the error's name."""
    seen = place.call(sockets.dial, to, at)
    return seen['port'] if isinstance(seen, dict) else seen


def is_closed(peer, to, at):
    """Behind the gate nobody answers, neither yes nor no."""
    return peer.call(sockets.dropped, to, at, 0.4)


def test_what_is_inside_goes_its_own_way(scene):
    _, pod, peer, inside = scene
    early = inside()
    service = serve(early, APP, 5432)
    assert port(early, peer.ip) == NOT_OUT, 'nobody knows yet which namespace is the pod\'s own'
    live(pod)
    assert port(early, peer.ip) == NOT_OUT, 'its Envoy does not listen yet'
    assert port(pod, early.ip, 5432) == NOT_OUT, 'a dial of the pod, which has no Envoy'
    assert is_closed(peer, early.ip, 5432)
    envoy = serve(pod, ENVOY, 15001, 15006)
    late = inside()
    other = serve(late, APP, 5432)
    for place, listens in (early, late), (late, early):
        seen = place.call(sockets.dial, peer.ip, 80)
        assert (seen['port'], seen['peername'], seen['peer']) == (80, peer.ip, place.ip), seen
        assert port(place, listens.ip, 5432) == 5432
        assert port(peer, place.ip, 5432) == 5432
        assert port(pod, place.ip, 5432) == 15001  # what the pod itself dials is Envoy's, wherever it leads
        assert pod.call(sockets.dial, place.ip, 5432, ENVOY, ENVOY)['port'] == 5432  # which comes through
    assert port(pod, peer.ip) == 15001
    assert port(peer, pod.ip, 8080) == 15006
    envoy.kill()
    for place in pod, early, late:
        assert port(place, peer.ip) == NOT_OUT
    assert port(peer, pod.ip, 8080) == NOT_OUT
    assert is_closed(peer, early.ip, 5432)
    serve(pod, ENVOY, 15001, 15006)
    assert [port(place, peer.ip) for place in (pod, early, late)] == [15001, 80, 80]
    service.kill()
    other.kill()


def _dial_in_user_namespace(to):
    """As `unshare -Urn` by the app's user: a namespace with an address of its own, which listens and dials there."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(APP, APP, APP)
            os.setresuid(APP, APP, APP)
            if _libc.prctl(4, 1, 0, 0, 0) or _libc.unshare(NEWUSER | NEWNET):  # dumpable, or its own maps are not its own
                raise OSError(ctypes.get_errno(), 'unshare')
            Path('/proc/self/setgroups').write_text('deny')
            Path('/proc/self/uid_map').write_text(f'0 {APP} 1')
            Path('/proc/self/gid_map').write_text(f'0 {APP} 1')
            for what in (['link', 'set', 'lo', 'up'], ['addr', 'add', f'{to}/32', 'dev', 'lo']):
                subprocess.run(['ip', *what], check=True)
            with socket.create_server((to, 80)), socket.create_connection((to, 80), PATIENCE_S) as s:
                os.write(writer, json.dumps(s.getpeername()).encode())
        except OSError as e:
            os.write(writer, json.dumps(type(e).__name__).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        said = json.loads(f.read() or '"died"')
    os.waitpid(pid, 0)
    return said


def test_a_user_namespace_with_a_network_of_its_own(scene):
    _, pod, _, _ = scene
    live(pod)
    assert pod.call(_dial_in_user_namespace, '198.18.0.1') == NOT_OUT
    serve(pod, ENVOY, 15001, 15006)
    assert pod.call(_dial_in_user_namespace, '198.18.0.1') == ['198.18.0.1', 80]


def test_a_new_sandbox_is_never_taken_for_one(scene):
    """Its app dials before its Envoy listens, before that has spoken, and after; with agentd and without."""
    node, pod, peer, inside = scene
    serve(pod, ENVOY, 15001, 15006)
    live(pod)
    assert port(inside(), peer.ip) == 80  # so the rule that is tested is in force
    for away in True, False:
        if away:
            node.agentd.kill()
        pod.renew_sandbox()
        if not away:  # or it takes the next sandbox for an intruder
            pod.wait_emptied()
        serve(pod, APP, 8080)
        for _ in range(3):
            assert port(pod, peer.ip) == NOT_OUT
        child = inside()
        assert port(child, peer.ip) == NOT_OUT
        assert is_closed(peer, pod.ip, 8080)
        serve(pod, ENVOY, 15001, 15006)
        assert port(pod, peer.ip) == 15001
        assert port(child, peer.ip) == NOT_OUT
        assert is_closed(peer, pod.ip, 8080)
        if away:
            node.agentd.start()
            pod.wait_served()
            assert port(pod, peer.ip) == 15001
        live(pod)
        assert [port(pod, peer.ip), port(child, peer.ip), port(peer, pod.ip, 8080)] == [15001, 80, 15006]


def test_an_envoy_inside_speaks_for_nobody(scene):
    """A mesh in a pod of a mesh: while the pod's own Envoy is gone, another of its user listens inside."""
    _, pod, peer, inside = scene
    envoy = serve(pod, ENVOY, 15001, 15006)
    live(pod)
    child = inside()
    nested = serve(child, ENVOY, 15001, 15006)
    assert [port(pod, peer.ip), port(child, peer.ip)] == [15001, 80]
    nested.kill()
    envoy.kill()
    serve(child, ENVOY, 15001, 15006)
    assert [port(pod, peer.ip), port(child, peer.ip)] == [NOT_OUT, 15001]
    envoy = serve(pod, ENVOY, 15001, 15006)
    assert peer.call(sockets.dial, pod.ip, 8080)['pid'] == envoy.pid
    assert [port(pod, peer.ip), port(child, peer.ip)] == [15001, 80]
