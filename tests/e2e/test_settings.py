"""A setting of the node that changes takes nothing from a pod that is served (security-rules.md G10).

Two pods with real Envoys talk all the time, with certificates of a few seconds; the next agentd has the changed setting,
and requests go on through two lives of the certificates.
"""
import json
import os
import time

import pytest

from . import mesh, settings
from .csi import CsiNode
from .run import wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
LIFE_S = 8
MOVED = 'moved.example'
SAYS = {'ISTIO_META_CLUSTER_ID': 'Kubernetes', 'ISTIO_META_MESH_ID': 'mesh-old', 'SECRET_TTL': f'{LIFE_S}s'}
EXCLUDES = {'ISTIO_METAJSON_ANNOTATIONS': json.dumps({'traffic.sidecar.istio.io/excludeOutboundPorts': '9999'})}


def wait_refused(pod, why):
    """The kubelet tells its user so."""
    wait_for(f'{pod.label} to be refused', lambda: any(
        why in r['text'] for r in pod.node.kubelet.journal('event', uid=pod.uid)))


class Scene:
    """A client and a server as the injector wrote them, under load; the client excludes a port from redirection."""

    def __init__(self, node):
        self.node = node
        node.agentd.plane.update(mesh_id='mesh-old')
        node.start()
        node.istiod.order('cluster-ids', names=['Kubernetes', 'prod-eu-1'])
        self.server = node.csi_pod('server', attributes=SAYS)
        self.client = node.csi_pod('client', attributes={**SAYS, **EXCLUDES})
        self.pods = self.server, self.client
        for pod in self.pods:
            pod.sandbox()
        captured = mesh.captured_client(self.server)
        node.istiod.set(self.client.id, **{kind: some + captured[kind] for kind, some in
                                           mesh.client(self.server, also=[MOVED]).items()})
        node.istiod.set(self.server.id, **mesh.captured_server([self.client], also=[MOVED]))
        self.server.start_app(mesh.INBOUND, '0.0.0.0')
        for pod in self.pods:
            pod.start_envoy()
        for pod in self.pods:
            pod.wait_ready()
        wait_for('the first answer', lambda: self.client.netns.http(mesh.OUTBOUND)[0] == 200)
        self.load = self.client.load(mesh.OUTBOUND)

    def page(self, pod):
        return next(p for p in self.node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)

    def are_served(self):
        wait_for('both to be served', lambda: all(self.page(p)['ready'] for p in self.pods))

    def two_lives(self):
        """Each has been issued twice more, and the second one is in use."""
        serials = [p.envoy_serials()[0] for p in self.pods]
        before = len(self.node.istiod.issued())
        wait_for('two more certificates of each', lambda: len(self.node.istiod.issued()) >= before + 4)
        wait_for('Envoys to have them', lambda: all(
            not p.envoy_serials()[0] & s for p, s in zip(self.pods, serials)))
        time.sleep(LIFE_S)
        self.load.more(20)
        assert self.load.counts()['failed'] == 0, self.load.counts()

    def ignored(self, pod):
        return {key.split(' ')[0] for key in self.page(pod)['ignored']}

    def refuses(self, name, why, **attributes):
        """A new pod is told why at its start."""
        pod = self.node.csi_pod(name, attributes=attributes)
        wait_refused(pod, why)
        pod.force_delete()


@pytest.fixture
def scene(capturing):
    return Scene(capturing(kind=CsiNode))


def test_every_setting_has_a_row():
    flags, keys = settings.of_flags()
    assert flags == settings.FLAGS.keys()
    assert keys == settings.KEYS.keys()
    assert settings.of_planes() == settings.PLANE_KEYS.keys()


def change(node, where, name, value):
    """For the next agentd of the node."""
    if where is settings.FLAGS:
        value = value.format(dir=node.dir, cgroup=node.cgroup_name) if isinstance(value, str) else value
        node.agentd.flags += [f'--{name}'] if value is True else [f'--{name}', value]
    elif where is settings.KEYS:
        node.agentd.settings[name] = value
    else:
        node.agentd.plane[name] = value


def test_a_change_of_each_kind(scene):
    """All at once, and istiod's own trust domain moves meanwhile: its new name is listed, the old one with it."""
    node = scene.node
    for where, name in ((settings.PLANE_KEYS, 'cluster_id'), (settings.PLANE_KEYS, 'mesh_id'),
                        (settings.PLANE_KEYS, 'trust_domain'), (settings.KEYS, 'secret_ttl_max_s'),
                        (settings.FLAGS, 'redirect-allow'), (settings.FLAGS, 'max-pods')):
        change(node, where, name, where[name][0])
    node.roll_out()
    scene.are_served()
    for pod in scene.pods:
        assert scene.ignored(pod) == SAYS.keys()
    status, text = node.agentd.ctl_text('status')
    assert status == 1 and '1 pod above the ceiling of this node' in text and scene.client.label in text
    assert 'does not allow outbound exclusions' in json.dumps(node.agentd.ctl('redirect'))
    scene.refuses('former', 'allowed: prod-eu-1', **SAYS)
    scene.refuses('third', '--max-pods')
    node.istiod.order('trust-domain', name=MOVED)
    scene.two_lives()
    assert {c['spiffe_id'].split('/')[2] for c in node.agentd.ctl('certs')['certificates'] if c['subscribers']} == {MOVED}
    assert not node.istiod.journal('refused')


def test_a_node_that_is_booted_again_publishes_anew(make_node):
    """The same uids: a former name is taken if it is listed."""
    node = make_node(kind=CsiNode, mode='release').start()
    node.istiod.order('cluster-ids', names=['Kubernetes', 'prod-eu-1'])
    pod = node.csi_pod('web', attributes={'ISTIO_META_CLUSTER_ID': 'Kubernetes'}).wait_running()
    node.agentd.plane['cluster_id'] = 'prod-eu-1'
    node.reboot()
    node.start()
    wait_refused(pod, 'allowed: prod-eu-1')
    node.agentd.stop()
    node.agentd.plane['cluster_id'] = ['prod-eu-1', 'Kubernetes']
    node.agentd.start()
    pod.wait_running()
    wait_for('it to be served', lambda: [p['ready'] and p['ignored'] for p in node.agentd.ctl('pods')['pods']] == [[]])
    wait_for('all to be well', lambda: node.agentd.ctl_text('status')[0] == 0)


def test_a_machine(make_node):
    """Its manifest is as it was; one that changes is refused as any other."""
    node = make_node(mode='release')
    node.agentd.start()
    pod = node.pod('web', env={'ISTIO_META_CLUSTER_ID': 'Kubernetes'}).wait_served()

    def page():
        return node.agentd.ctl('pods')['pods'][0]
    wait_for('it to be served', lambda: page()['ready'])
    node.agentd.stop()
    node.agentd.plane['cluster_id'] = 'prod-eu-1'
    node.agentd.start()
    wait_for('it to be served again', lambda: page()['ready'])
    assert page()['ignored'] == ['ISTIO_META_CLUSTER_ID ("Kubernetes"; on this node now: prod-eu-1)']
    pod.write_manifest(labels={'app': 'web'})
    wait_for('its change to be refused', lambda: 'allowed: prod-eu-1' in page()['why_not'])


@pytest.mark.skipif(not SOAK, reason='AGENTD_SOAK')
@pytest.mark.timeout(300)
@pytest.mark.parametrize('where,name', [
    pytest.param(where, name, id=name) for where in (settings.FLAGS, settings.KEYS, settings.PLANE_KEYS)
    for name, (_, kind) in where.items() if kind not in (settings.NOT_READY, settings.COMMAND)])
def test_each_setting(scene, where, name):
    node, (value, kind) = scene.node, where[name]
    change(node, where, name, value)
    node.roll_out()
    scene.are_served()
    ignored = set().union(*(scene.ignored(p) for p in scene.pods))
    assert (len(ignored) == 1) == (kind == settings.IGNORED), ignored
    assert ('above the ceiling' in node.agentd.ctl_text('status')[1]) == (kind == settings.ABOVE)
    if kind == settings.NEW:
        scene.refuses('third', f'--{name}')
    scene.two_lives()
