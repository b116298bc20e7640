"""Pods whose cgroups nobody names: agentd finds them by uid where a kubelet makes them (kubelet-csi.md 3c)."""
import json
from types import SimpleNamespace

import pytest

from . import bpfmap, clients, sockets, strangers
from .run import Cgroup, kill_all, remove_cgroup, wait_for
from .strangers import Place
from .test_redirect import APP, ENVOY, Bystander, serve

CLASSES = '', 'burstable', 'besteffort'
TREES = {'cgroupfs': 'kubepods', 'systemd': 'kubelet.slice/kubelet-kubepods.slice'}
OUT, IN = 15001, 15006


def place_of(tree, service, uid):
    """Where the kubelet makes the cgroup of a pod: by the driver of `tree`, below it."""
    if not tree.endswith('.slice'):
        return '/'.join(filter(None, (tree, service, f'pod{uid}')))
    folder = name = tree.rpartition('/')[2].removesuffix('.slice')
    if service:
        name = f'{folder}-{service}'
    return '/'.join(filter(None, (tree, service and f'{name}.slice', f'{name}-pod{uid.replace("-", "_")}.slice')))


class KubePod:
    """A pod of a kubelet: its cgroup holds the containers' alone, and comes after agentd has heard of it."""

    def __init__(self, node, tree, service):
        self.pod = node.pod(service or 'guaranteed', manifest=False)
        self.pod.cgroup.remove()
        self.home = node._cgroup.path / place_of(tree, service, self.pod.uid)
        self._n = 0
        self.pod.write_token()
        (node.agentd.manifests / self.pod.uid / 'cgroup').unlink()
        self.pod.write_manifest()

    def start(self):
        """The pod's cgroup, then a sandbox."""
        self.home.mkdir(parents=True)
        return self.start_sandbox()

    def start_sandbox(self):
        self._n += 1
        self.container('sandbox')
        self.pod.cgroup = self.container('envoy')
        self.app = SimpleNamespace(netns=self.pod.netns, dir=self.pod.dir, cgroup=self.container('app'))
        return self

    def container(self, name):
        path = self.home / f'{name}{self._n}'
        path.mkdir()
        cgroup = Cgroup.__new__(Cgroup)
        cgroup.path = path
        return cgroup

    def end_sandbox(self):
        self.pod.renew_sandbox()
        for folder in kill_all(self.home)[:-1]:
            wait_for(f'{folder} to go', lambda f=folder: f.rmdir() is None)
        self.pod.wait_emptied()

    def serve(self):
        serve(self.pod, ENVOY, OUT, IN)
        serve(self.app, APP, 8080)

    def dial(self, to, port):
        """As the app."""
        with Place(self.app.cgroup, self.pod.netns.path) as place:
            return place.call(sockets.dial, to, port, APP, APP)

    def live(self):
        said = self.pod.call(clients.fetch_secrets, self.pod.mount / 'socket', ['default'])
        if 'default' not in said:
            raise ValueError(said)  # for wait_for()


def captured(pods, peer):
    """Both ways, by each pod's own Envoy."""
    for p in pods:
        seen = p.dial(peer.ip, 80)
        assert isinstance(seen, dict) and (seen['port'], seen['original']) == (OUT, f'{peer.ip}:80'), (p.home, seen)
        seen = peer.call(sockets.dial, p.pod.ip, 8080)
        assert isinstance(seen, dict) and (seen['port'], seen['original']) == (IN, f'{p.pod.ip}:8080'), (p.home, seen)


def is_closed(p, peer):
    """A SYN that is let in is answered at once."""
    return peer.call(sockets.dropped, p.pod.ip, 8080, 0.5)


@pytest.fixture
def kubelet(capturing):
    """A node that redirects, the pods of all classes, and a host beside them; no cgroup of a pod is there yet."""
    def make(driver, tree=True):
        node = capturing()
        name = TREES[driver]
        node.agentd.flags += ['--kubepods', f'{node.cgroup_name}/{name}']
        if tree:
            (node._cgroup.path / name).mkdir(parents=True)
        node.agentd.start()
        pods = [KubePod(node, name, service) for service in CLASSES]
        peer = Bystander(node)
        node.pods.append(peer)
        return node, pods, peer
    return make


def sockets_of(pod):
    return next(p for p in pod.node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)['sockets']


def refused(pod):
    return sockets_of(pod)['refused_by'].get('cgroup', 0)


@pytest.mark.parametrize('driver', TREES)
def test_each_class_is_found(kubelet, driver):
    node, pods, peer = kubelet(driver, tree=False)  # that is awaited as well
    for p in pods:
        wait_for('its sockets', lambda m=p.pod.mount: (m / 'XDS').exists() and (m / 'socket').exists())
        assert not (p.pod.mount / 'envoy-rev.json').exists(), 'a strict pod waits for its cgroup'
    for p in pods:
        p.start().pod.wait_served()
        p.serve()
        assert is_closed(p, peer), 'until its Envoy has spoken'
        assert p.dial(peer.ip, 80)['port'] == OUT
        p.live()
    captured(pods, peer)  # all at once: they are at two levels of the tree

    one, two, _ = pods
    before = refused(one.pod)
    for container in two.app, two.pod:  # in one's network namespace, but in two's cgroup
        with Place(container.cgroup, one.pod.netns.path) as place:
            assert place.call(strangers.refused, one.pod.mount / 'socket') == 0
    assert refused(one.pod) == before + 2
    with Place(one.app.cgroup, one.pod.netns.path) as place:
        assert place.call(strangers.served, one.pod.mount / 'socket')
    assert sockets_of(one.pod)['attested']['unproven'] == ''

    node.agentd.kill()  # the next one finds them where they are
    node.agentd.start()
    captured(pods, peer)
    assert two.pod.call(clients.fetch_secrets, two.pod.mount / 'socket', ['default'])


@pytest.mark.parametrize('driver', TREES)
def test_a_sandbox_is_rebuilt(kubelet, driver):
    """The pod's cgroup stays, those of its containers go: closed until the next Envoy has spoken."""
    _, pods, peer = kubelet(driver)
    for p in pods:
        p.start().pod.wait_served()
        p.serve()
        p.live()
    for p in pods:
        p.end_sandbox()
        p.start_sandbox().serve()
        assert is_closed(p, peer)
        assert p.dial(peer.ip, 80)['port'] == OUT
        wait_for('the new namespace to be learned', lambda q=p: q.live() is None)
    captured(pods, peer)


def test_a_pod_comes_back_under_its_uid(kubelet):
    """As after the end of a node: its cgroup is another one, of another class even."""
    node, pods, peer = kubelet('cgroupfs')
    p = pods[1].start()
    p.pod.wait_served()
    p.serve()
    p.live()
    p.end_sandbox()
    remove_cgroup(p.home)

    def known():
        with bpfmap.Map(f'{bpfmap.pins(node.dir / "bpf")}/map_pods', 8) as m:
            return [key for key, _ in m.items()]
    before = known()
    p.home = node._cgroup.path / place_of('kubepods', 'besteffort', p.pod.uid)
    p.start()
    wait_for('the new cgroup to be written', lambda: known() not in ([], before))
    p.serve()
    assert is_closed(p, peer)
    wait_for('the new namespace to be learned', lambda: p.live() is None)
    captured([p], peer)


def test_what_root_names_wins(kubelet):
    """And a pod that is nowhere is served nothing."""
    node, pods, peer = kubelet('cgroupfs')
    p = pods[0]
    named = node.cgroup('named')
    (node.agentd.manifests / p.pod.uid / 'cgroup').write_text(named.below_root() + '\n')
    p.pod.write_manifest(annotations={'again': 'yes'})
    p.start()
    p.pod.wait_served()
    with Place(p.pod.cgroup, p.pod.netns.path) as place:
        assert place.call(strangers.refused, p.pod.mount / 'socket') == 0
    with Place(named, p.pod.netns.path) as place:
        assert place.call(strangers.served, p.pod.mount / 'socket')
        serve(SimpleNamespace(netns=p.pod.netns, dir=p.pod.dir, cgroup=named), ENVOY, OUT)
        assert place.call(sockets.dial, peer.ip, 80, APP, APP)['port'] == OUT
    nowhere = pods[1].pod
    with Place(named, nowhere.netns.path) as place:
        assert place.call(strangers.refused, nowhere.mount / 'socket') == 0
    assert 'does not exist' in json.dumps(node.agentd.ctl('pods')) or refused(nowhere) == 1
