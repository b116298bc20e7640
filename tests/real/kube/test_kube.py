"""A cluster as users have it.  Each case begins with a node on which all is well, and leaves it so."""
import json
import os
import random
import re
import time

import pytest

from tests.e2e.run import TOP

from . import apps, images
from .cluster import DRIVER, RELEASE, commands
from .conftest import applied
from .load import Load
from .node import DAEMONS, V4, V6
from .waiting import wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
REBOOTS = int(os.environ.get('KUBE_REBOOTS', 20 if SOAK else 3))
PODS = int(os.environ.get('KUBE_PODS', 250 if SOAK else 50))
ENVOYS = 30 if SOAK else 10  # of these pods; the others have none
SERVES_WITHIN_S = 60
NAMES_IN_10_S = 3  # at 0, 2 and 6 s
ABSENT_S = 300 if SOAK else 20

pytestmark = pytest.mark.usefixtures('well')


def test_what_the_document_shows_after_the_installation(mesh):
    said = mesh.script(commands('Verify')[0])
    assert DRIVER in said and 'kubelet        registered' in said and 'problem ' not in said
    drivers = mesh.get('csinode', 'node', namespace=None)['spec']['drivers']
    assert [d['name'] for d in drivers] == [DRIVER]


def test_the_document_shows_at_which_level_a_node_that_is_a_container_begins(mesh):
    if mesh.node.whole_tree:
        assert 'begins at level' not in mesh.kubectl('-n', RELEASE, 'logs', 'ds/agentd')
    else:
        said = mesh.script(commands('A node that is a container')[0])
        assert 'begins at level 2' in said and "of the host's tree" in said


def test_a_check_without_the_kubelets_cgroup_names_it(mesh):
    """As on a node whose kubelet has a --cgroup-root that nobody told agentd of."""
    said = mesh.node.run('sh', '-c', f'{TOP}/build/release/agentd --check --kubelet-root /var/lib/kubelet 2>&1 || :')
    line, = (line for line in said.splitlines() if "the kubelet's cgroup" in line)
    if mesh.node.whole_tree:  # it names the first one of the machine
        assert line.startswith('PROBLEM') and re.search(r'kubepods(\.slice)?: agentd does not look there; name it', line)
    else:
        assert line.startswith('ok')


def test_a_request_passes_both_envoys_and_the_programs_saw_it(mesh):
    before = mesh.counters()
    assert mesh.ask()
    after = mesh.counters()
    assert all(after[pod]['requests'] > before[pod]['requests'] for pod in after)
    assert after['client']['redirected'] > before['client']['redirected']
    assert after['web']['redirected'] > 0  # Envoy's connection between the two may be an older one


def test_ipv6_passes_both_envoys_too(mesh, made):
    own = [V6 if ':' in at['ip'] else V4 for at in mesh.get('pod', mesh.pod('web'))['status']['podIPs']]
    assert own == mesh.node.families
    if V6 not in own:
        return
    made(apps.service('web6', selector={'app': 'web'}, ipFamilies=['IPv6'], ipFamilyPolicy='SingleStack'))
    address = mesh.get('service', 'web6')['spec']['clusterIP']
    before = mesh.counters()
    wait_for('an answer', lambda: mesh.ask(url='http://web6.demo/'))
    after = mesh.counters()
    assert ':' in address and after['client']['redirected'] > before['client']['redirected']
    assert after['web']['requests'] > before['web']['requests']


def test_a_pod_in_the_nodes_own_network_is_served_by_nobody(mesh, made):
    """istiod does not inject it; one that brings the volume itself the API server refuses.  Without the chart's policy it starts, and
    agentd says that it saw nothing."""
    volume = {'name': 'agentd', 'csi': {'driver': DRIVER, 'readOnly': True}}
    thing = apps.pod('of-the-node', hostNetwork=True, volumes=[volume], containers=[apps.container(
        'while sleep 1; do nc -w 1 127.0.0.1 1; done',
        volumeMounts=[{'name': 'agentd', 'mountPath': '/etc/istio/proxy', 'readOnly': True}])])
    with mesh.any_pod():
        assert 'a pod with hostNetwork has no network of its own' in mesh.refused(thing)
        with mesh.upgraded('--set', 'admissionPolicy.enabled=false'):
            wait_for('the API server to take it', lambda: not mesh.refused(thing))
            made(thing)
            mesh.ready('of-the-node')
            wait_for('it to have dialled', lambda: 'refused' in mesh.kubectl('-n', 'demo', 'logs', 'of-the-node'))
            line, = (line for line in mesh.agentctl('redirect').splitlines() if 'of-the-node' in line)
            assert 'unseen' in line and not mesh.redirection('of-the-node')['inbound']


def reboot_orders():
    """All at once as a boot does, the kubelet first and last, and others by chance, which a seed repeats."""
    others = [d for d in DAEMONS if d != 'kubelet']
    yield from (list(DAEMONS), ['kubelet', *others], [*others[::-1], 'kubelet'])
    chance = random.Random(1)
    while True:
        yield chance.sample(DAEMONS, len(DAEMONS))


ORDERS = reboot_orders()


@pytest.mark.parametrize('order', [next(ORDERS) for _ in range(REBOOTS)], ids=lambda o: '-'.join(d[0] for d in o))
def test_after_a_reboot_all_serve(mesh, order, record_property):
    pods = {p['metadata']['name']: p['metadata']['uid'] for p in mesh.get('pods')}
    mesh.node.reboot(order)
    began = mesh.node.daemons['kubelet'].began
    mesh.wait_served({name for name in pods if name.startswith('web')}, SERVES_WITHIN_S - (time.monotonic() - began))
    record_property('served after', f'{time.monotonic() - began:.0f} s')
    assert {p['metadata']['name']: p['metadata']['uid'] for p in mesh.get('pods')} == pods


@pytest.fixture
def known(mesh, record_property):
    """The kubelet registers agentd: under one of the names that agentd tries within 10 s (agentd/broker/kubelet/csi.h)."""
    def wait(since=None):
        mesh.wait_registered()
        seconds, names = wait_for('the kubelet to say so', lambda: mesh.registration(since))
        record_property('registered after', f'{seconds:.0f} s')
        assert names <= NAMES_IN_10_S
    return wait


def test_a_kubelet_that_restarts_changes_nothing(mesh, known):
    with Load(mesh) as load:
        known(mesh.restart_kubelet())
        load.more(30)
    assert load.failed == 0


def test_a_kubelet_that_restarts_while_agentd_is_away_finds_it_later(mesh, made, known):
    with Load(mesh) as load:
        with mesh.agentd_away():
            mesh.restart_kubelet()
            made(apps.pod('late'))
            wait_for('the event', lambda: any(
                'not found in the list of registered CSI drivers' in e for e in mesh.events('late')))
            load.more(10)
        known()
        mesh.ready('late')
        load.more(10)
    assert load.failed == 0 and mesh.ask('pod/late')


def test_agentd_absent_for_long_is_not_missed(mesh, known):
    serials = mesh.serials()
    with Load(mesh) as load:
        with mesh.agentd_away():
            back = time.monotonic() + ABSENT_S
            while time.monotonic() < back:
                load.more(10)
        known()
        load.more(30)
    assert load.failed == 0 and mesh.serials() == serials


def test_agentd_evicted_comes_back_to_its_pods(mesh, known):
    serials = mesh.serials()
    with Load(mesh) as load:
        old = mesh.agentd_pod()
        mesh.evict(old, RELEASE)
        mesh.rolled_out('daemonset/agentd', RELEASE)
        known()
        load.more(30)
    assert load.failed == 0 and mesh.agentd_pod() != old and mesh.serials() == serials


def test_agentd_killed_comes_back_to_its_pods(mesh, known):
    with Load(mesh) as load:
        mesh.kill('agentd')
        wait_for('the container to be started again', lambda: mesh.restarts(RELEASE, mesh.agentd_pod()) > 0)
        known()
        load.more(30)
    assert load.failed == 0


def test_a_drained_node_has_nothing_left_of_its_pods(mesh):
    uids = [p['metadata']['uid'] for p in mesh.get('pods')]
    mesh.kubectl('drain', 'node', '--ignore-daemonsets', '--delete-emptydir-data', '--force', patience_s=200)
    wait_for('nothing to be left', lambda: not mesh.left_of(uids))
    assert json.loads(mesh.agentctl('pods', '-o', 'json'))['pods'] == []
    mesh.kubectl('uncordon', 'node')
    for name in ('web', 'client'):
        mesh.rolled_out(f'deployment/{name}')
    wait_for('an answer', lambda: mesh.ask())


@pytest.mark.on('container')
@pytest.mark.parametrize('key, value', [
    ('traffic.sidecar.istio.io/excludeInboundPorts', '8080,x'),
    ('sidecar.istio.io/interceptionMode', 'TPROXY'),
    ('agentd.node.mesh/redirect', 'sometimes'),
], ids=lambda v: v.rpartition('/')[2])
def test_a_wrong_annotation_is_said_in_words(mesh, made, key, value):
    name = key.rpartition('/')[2]
    thing = apps.pod(f'wrong-{name.lower()}', annotations={**apps.MESHED, key: value})
    said = mesh.refused(thing)  # istiod's injector knows some of them
    if not said:
        made(thing)
        pod = thing['metadata']['name']
        said = str(wait_for('the event', lambda: [e for e in mesh.events(pod) if 'SetUp failed' in e]))
        assert not mesh.well()  # until the pod is gone
    assert name in said and value in said


@pytest.mark.on('container')
def test_a_container_cannot_write_in_the_volume(mesh, made):
    """With runc 1.2 and newer the word of the pod's volume decides, not the driver's mount: without it the pod is refused."""
    thing = apps.pod('writes', annotations={'sidecar.istio.io/inject': 'false'})
    volume = {'name': 'agentd', 'csi': {'driver': DRIVER}}
    thing['spec']['volumes'] = [volume]
    thing['spec']['containers'][0]['volumeMounts'] = [{'name': 'agentd', 'mountPath': '/etc/istio/proxy'}]  # asks for rw
    assert f'the volume of {DRIVER} needs readOnly: true' in mesh.refused(thing)
    volume['csi']['readOnly'] = True
    made(thing)
    mesh.ready('writes')
    # Who may not write for the file's mode alone would be told so (EACCES).
    said = mesh.exec('writes', 'app', 'sh', '-c', 'touch /etc/istio/proxy/x 2>&1; cat /proc/self/mountinfo')
    mount, = (line for line in said.splitlines() if ' /etc/istio/proxy ' in line)
    assert 'Read-only file system' in said and ' /etc/istio/proxy ro,' in mount


@pytest.mark.on('container')
def test_tokens_are_renewed(mesh):
    """A kubelet that starts has no tokens in its cache, so the next call for each volume brings a new one."""
    pod = mesh.pod('web')

    def expires():
        return json.loads(mesh.agentctl('pods', f'demo/{pod}', '-o', 'json'))['pods'][0]['token']['expires']
    before = expires()
    mesh.restart_kubelet()
    mesh.wait_registered()
    wait_for('a younger token', lambda: expires() > before)


# Asks a pod as long as there is one, while it goes and comes.
STRANGER = '''cd /tmp; echo 0 >answered; echo 0 >refused; (while [ ! -e stop ]; do
  if timeout 2 wget -q -O /dev/null http://db.demo:8080/; then to=answered; else to=refused; fi; echo $(($(cat $to) + 1)) >$to; sleep 0.05
done; touch stopped) >/dev/null 2>&1 </dev/null &'''
STRANGERS_COUNT = 'cd /tmp; touch stop; while [ ! -e stopped ]; do sleep 0.1; done; cat refused answered'


@pytest.fixture(scope='class')
def workloads(mesh):
    """Of every kind, and all at once, so that each case waits for what the others wait for, too."""
    script = 'until timeout 5 wget -q -O- http://web.demo/; do sleep 1; done'
    init = apps.container('timeout 5 wget -q -O- http://web.demo/', name='first')
    objects = [
        apps.job('once', script),
        {'apiVersion': 'batch/v1', 'kind': 'CronJob', 'metadata': {'name': 'often', 'namespace': 'demo'},
         'spec': {'schedule': '* * * * *', 'jobTemplate': {'spec': apps.job('often', script)['spec']}}},
        apps.service('db', clusterIP='None', publishNotReadyAddresses=True, ports=[{'name': 'http', 'port': apps.PORT}]),
        apps.workload('StatefulSet', 'db', apps.SERVE, serviceName='db'),
        apps.pod('with-init', initContainers=[init]),
        apps.pod('stranger', annotations={'sidecar.istio.io/inject': 'false'}),
        apps.pod('forced'), apps.pod('mapped', hostUsers=False)]
    with applied(mesh) as make:
        make(*objects)
        yield mesh


class TestWorkloads:
    def test_a_job_ends(self, workloads):
        workloads.kubectl('-n', 'demo', 'wait', '--for=condition=complete', 'job/once', '--timeout=120s', patience_s=130)

    def test_an_init_container_is_in_the_mesh(self, workloads):
        workloads.ready('with-init')
        assert workloads.kubectl('-n', 'demo', 'logs', 'with-init', '-c', 'first').startswith('web-')

    def test_who_is_not_in_the_mesh_is_refused(self, workloads):
        workloads.ready('stranger')
        assert workloads.ask() and not workloads.ask('pod/stranger')

    def test_a_stateful_set_comes_back_with_the_same_name(self, workloads):
        mesh = workloads
        mesh.rolled_out('statefulset/db')
        wait_for('an answer', lambda: mesh.ask(url='http://db.demo:8080/') == 'db-0\n')
        mesh.exec('stranger', 'app', 'sh', '-c', STRANGER)
        first = mesh.get('pod', 'db-0')['metadata']['uid']
        mesh.kubectl('-n', 'demo', 'delete', 'pod', 'db-0')
        wait_for('another db-0', lambda: (mesh.get('pod', 'db-0') or {'metadata': {'uid': first}})['metadata']['uid'] != first)
        mesh.rolled_out('statefulset/db')
        wait_for('nothing to be left of the first', lambda: not mesh.left_of([first]))
        wait_for('the second to answer', lambda: mesh.ask(url='http://db.demo:8080/') == 'db-0\n')
        refused, answered = (int(n) for n in mesh.exec('stranger', 'app', 'sh', '-c', STRANGERS_COUNT).split())
        assert refused > 10 and not answered  # also before its Envoy was there

    def test_a_pod_deleted_by_force_leaves_nothing(self, workloads):
        workloads.ready('forced')
        uid = workloads.get('pod', 'forced')['metadata']['uid']
        assert workloads.left_of([uid])
        workloads.kubectl('delete', 'pod', '-n', 'demo', 'forced', '--force', '--grace-period=0')
        wait_for('nothing to be left', lambda: not workloads.left_of([uid]))

    def test_a_pod_with_a_user_namespace_is_served(self, workloads):
        """Envoy's uid is another one on the node.  A runtime that cannot do it says so (containerd 1.6)."""
        mesh = workloads
        if mesh.node.kind != 'systemd':
            wait_for('the event', lambda: any('user namespace' in e for e in mesh.events('mapped')))
            return
        mesh.ready('mapped')
        first = mesh.exec('mapped', 'app', 'cat', '/proc/self/uid_map').split()[1]
        assert int(first) >= 65536
        wait_for('an answer', lambda: mesh.ask('pod/mapped'))
        attested = json.loads(mesh.agentctl('pods', 'demo/mapped', '-o', 'json'))['pods'][0]['sockets']['attested']
        assert attested['cgroup_ids'] and not attested['unproven']
        assert mesh.redirection('mapped')['redirected'] > 0

    def test_a_cron_job_makes_one(self, workloads):
        wait_for('a job of the CronJob to end', lambda: any(
            j['status'].get('succeeded') for j in workloads.get('jobs') if j['metadata']['name'].startswith('often')), 150)


@pytest.mark.on('whole')
def test_many_pods_at_once(mesh, made, record_property):
    envoys = min(ENVOYS, PODS)
    made(apps.service('crowd'), apps.workload('Deployment', 'crowd', apps.SERVE, replicas=envoys),
         apps.light('light', PODS - envoys))
    for name in ('crowd', 'light'):
        mesh.rolled_out(f'deployment/{name}', patience_s=900)
    pods = json.loads(mesh.agentctl('pods', '-o', 'json'))['pods']
    found = {name: [p for p in pods if p['name'].startswith(f'{name}-')] for name in ('crowd', 'light')}
    assert {name: len(of) for name, of in found.items()} == {'crowd': envoys, 'light': PODS - envoys}
    assert all(p['ready'] for of in found.values() for p in of)
    record_property('pods', f'{PODS}, of which {envoys} with an Envoy')
    for _ in range(20):
        assert mesh.ask(url='http://crowd.demo/')


def test_names_that_istiod_alone_knows_are_answered(mesh, made):
    """DNS capture, as a pod asks for it; what istiod does not know the cluster's DNS answers."""
    address, record = ('240.0.0.77', 'a') if V4 in mesh.node.families else ('2001:2::77', 'aaaa')
    entry = {'apiVersion': 'networking.istio.io/v1', 'kind': 'ServiceEntry', 'metadata': {'name': 'shop', 'namespace': 'demo'},
             'spec': {'hosts': ['shop.example'], 'addresses': [address], 'location': 'MESH_INTERNAL',
                      'resolution': 'STATIC', 'ports': [{'number': 80, 'name': 'http', 'protocol': 'HTTP', 'targetPort': 8080}],
                      'workloadSelector': {'labels': {'app': 'web'}}}}
    captured = {**apps.MESHED, 'proxy.istio.io/config': '{"proxyMetadata": {"ISTIO_META_DNS_CAPTURE": "true"}}'}
    with mesh.upgraded('--set', f'redirect.dnsUpstream={{{mesh.node.dns}}}'):
        made(entry, apps.pod('names', annotations=captured))
        mesh.ready('names')
        wait_for('an answer by that name', lambda: mesh.ask('pod/names', 'http://shop.example/'))
        assert address in mesh.exec('names', 'app', 'nslookup', f'-type={record}', 'shop.example')
        assert not mesh.ask(url='http://shop.example/')  # who did not ask for it
        # No Service, but a name of the cluster: of one pod behind the API server's.
        assert 'NXDOMAIN' in mesh.exec('names', 'app', 'sh', '-c', 'nslookup nobody.demo.svc.cluster.local 2>&1 || :')
        mesh.delete(apps.pod('names'))


@pytest.mark.on('container')
def test_a_second_istiod_of_a_revision_serves_its_own_pods(mesh, made):
    """Two control planes on one node; their pods talk mTLS with each other."""
    space = apps.namespace('canary')
    del space['metadata']['labels']['istio-injection']
    space['metadata']['labels']['istio.io/rev'] = 'canary'
    planes = [{'name': 'istiod', 'address': 'istiod.istio-system.svc:15012'}, {'name': 'canary'}]
    for plane in planes:
        plane['rootConfigMap'] = {'name': 'istio-ca-root-cert', 'key': 'root-cert.pem'}
    with mesh.second_istiod('canary') as planes[1]['address'], mesh.upgraded('--set-json', f'controlPlanes={json.dumps(planes)}'):
        made(space)
        try:
            mesh.apply(*apps.into('canary', apps.strict('canary'), apps.pod('bird', apps.SERVE), apps.service('bird')))
            mesh.kubectl('-n', 'canary', 'wait', '--for=condition=Ready', 'pod/bird', '--timeout=120s', patience_s=130)
            wait_for('an answer from it', lambda: mesh.ask(url='http://bird.canary/') == 'bird\n')
            wait_for('an answer to it', lambda: mesh.ask('pod/bird', namespace='canary'))
            status = json.loads(mesh.agentctl('status', '-o', 'json'))
            assert [p['name'] for p in status['control_planes']] == ['istiod', 'canary']
            served = {name: mesh.kubectl('-n', 'istio-system', 'exec', f'deploy/{name}', '--', 'pilot-discovery', 'request',
                                         'GET', '/debug/syncz') for name in ('istiod', 'istiod-canary')}
            assert 'bird.canary' in served['istiod-canary'] and 'bird.canary' not in served['istiod']
            assert mesh.pod('web') in served['istiod'] and mesh.pod('web') not in served['istiod-canary']
        finally:
            mesh.delete(space)


@pytest.mark.on('systemd')
def test_a_broken_upgrade_and_the_way_back_and_a_good_one(mesh):
    with Load(mesh) as load:
        mesh.helm_upgrade('--set', 'extraArgs={--no-such-flag}')
        wait_for('the new one to fail', lambda: any(mesh.restarts(RELEASE, p) for p in mesh.agentd_pods()))
        assert mesh.well()
        load.more(10)
        mesh.helm('rollback', 'agentd', '-n', RELEASE)
        mesh.rolled_out('daemonset/agentd', RELEASE)
        before = mesh.agentd_pod()
        mesh.helm_upgrade('--set', f'image.tag={mesh.next_tag()}')
        mesh.rolled_out('daemonset/agentd', RELEASE)
        wait_for('one agentd', lambda: len(mesh.agentd_pods()) == 1)
        assert mesh.agentd_pod() != before
        load.more(20)
    assert load.failed == 0


@pytest.mark.on('systemd')
def test_a_roll_out_without_a_surge_is_not_noticed(mesh):
    """The old agentd ends before the new one starts; back again with a surge."""
    with Load(mesh) as load:
        with mesh.upgraded('--set', f'image.tag={mesh.next_tag()}', '--set',
                           'updateStrategy.rollingUpdate.maxSurge=0,updateStrategy.rollingUpdate.maxUnavailable=1'):
            mesh.wait_registered()
            load.more(20)
        mesh.wait_registered()
        load.more(20)
    assert load.failed == 0


@pytest.mark.on('systemd')
def test_an_uninstall_by_mistake_is_not_noticed(mesh):
    """Helm's record goes, agentd stays; the same chart takes it over."""
    with Load(mesh) as load:
        assert 'DaemonSet] agentd' in mesh.helm('uninstall', 'agentd', '-n', RELEASE)
        assert mesh.well()
        load.more(20)
        mesh.helm_install_again()
        mesh.rolled_out('daemonset/agentd', RELEASE)
        mesh.wait_registered()
        load.more(20)
    assert load.failed == 0


@pytest.mark.on('container')
def test_a_workload_moves_to_pilot_agent_and_back(mesh, made):
    """By the commands of the document, the way back first.  What it asks, and who asks it, is agentd's all the time."""
    over, back = commands('Move one workload over')
    made(apps.pod('peer', apps.SERVE), apps.service('peer'))
    mesh.ready('peer')
    with mesh.any_pod():  # istio-init
        try:
            with Load(mesh) as load:
                mesh.script(back)
                mesh.rolled_out('deployment/web')
                wait_for('one server', lambda: len(mesh.pods('web')) == 1)
                load.more(20)
                web = mesh.pod('web')
                assert 'istio-init' in str(mesh.get('pod', web)['spec']) and not mesh.redirection(web)
                wait_for('an answer to it', lambda: mesh.ask('deploy/web', 'http://peer.demo/') == 'peer\n')
                mesh.script(over)
                wait_for('one server', lambda: len(mesh.pods('web')) == 1)
                load.more(20)
            assert load.failed == 0 and mesh.redirection(mesh.pod('web'))['redirected'] > 0
        finally:
            mesh.script(over)
            mesh.rolled_out('deployment/web')


def test_an_upgrade_from_an_earlier_release_is_not_noticed(mesh):
    """By KUBERNETES.md's command, with pods that the earlier one has published."""
    mesh.install_before()
    mesh.wait_registered()
    for name in ('web', 'client'):
        mesh.kubectl('-n', 'demo', 'rollout', 'restart', f'deployment/{name}')
        mesh.rolled_out(f'deployment/{name}')
    wait_for('the first answer', mesh.ask)
    serials = mesh.serials()
    with Load(mesh) as load:
        load.more(10)
        mesh.helm_upgrade('--set', f'image.tag={images.VERSION}', '--set',
                          'updateStrategy.rollingUpdate.maxSurge=1,updateStrategy.rollingUpdate.maxUnavailable=0')
        mesh.rolled_out('daemonset/agentd', RELEASE)
        wait_for('one agentd', lambda: len(mesh.agentd_pods()) == 1)
        mesh.wait_registered()
        load.more(30)
    assert load.failed == 0 and mesh.serials() == serials
