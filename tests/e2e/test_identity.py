"""Machines that live by their certificate: the first one, renewal without a token, reboots, refusals.

The control plane takes a client certificate before a token, as istiod does, and knows a connection by it.
"""
import collections
import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format

from . import clients
from .conftest import measured
from .identity import Identity, prepared, reboot
from .pod import HERE
from .run import TOP, wait_for

SOAK = os.environ.get('AGENTD_SOAK')
TTL = 8  # seconds: renewed after half of it; the other half is for a machine that stands still


@pytest.fixture
def node(make_node):
    return prepared(make_node(istiod_options=('--client-certificates',)))


def key_and_certificate_match(file):
    text = file.read_bytes()
    modulus = [subprocess.run(['openssl', *how], input=text, capture_output=True, check=True).stdout
               for how in (('pkey', '-pubout'), ('x509', '-noout', '-pubkey'))]
    return modulus[0] == modulus[1]


def test_the_first_one_by_token_the_others_without(node):
    node.istiod.order('ttl', seconds=TTL)
    machine = Identity(node, 'vm')
    node.agentd.start()
    machine.pod.wait_served()
    machine.pod.start_envoy()
    wait_for('its stream', machine.streams)
    machine.wait_credential('issued certificate')
    machine.pod.remove_token()
    renewals = 20 if SOAK else 2
    wait_for('renewals', lambda: len(machine.issued('certificate')) >= renewals)
    wait_for('the stream to follow each', lambda: len(machine.streams()) > renewals)
    measured.append(f'identity: a stream that moves to a renewed certificate was away for {max(machine.gaps()) * 1000:.0f} ms at most')
    assert len(machine.issued('token')) == 1
    assert machine.kept.stat().st_mode & 0o777 == 0o600 and key_and_certificate_match(machine.kept)


def istioctls_files(node, folder, pod):
    """Those of a real run (tests/real/istiod/test_machines.py keeps them true), for this control plane."""
    shutil.copytree(HERE / 'istioctl', folder)
    mesh_yaml = folder / 'mesh.yaml'
    mesh_yaml.write_text(mesh_yaml.read_text().replace('istiod.istio-system.svc:15012', node.istiod.address))
    (folder / 'istio-token').write_text(pod.token(uid=None))
    shutil.copy(node.istiod.root_file, folder / 'root-cert.pem')
    (folder / 'hosts').write_text(f'127.0.0.1 {node.istiod.server_name}\n')
    return folder


def test_the_files_of_istios_tool_become_a_machine(node):
    pod = node.pod('vm', manifest=False)
    files = istioctls_files(node, node.dir / 'vm', pod)
    node.agentd.start()
    made = node.agentd.ctl('manifest', '--from', files, '--to', node.agentd.manifests, '--name', 'vm')
    pod.uid = Path(made['manifest']).stem
    pod.wait_served()
    assert pod.is_served()
    metadata = pod.bootstrap()['node']['metadata']
    assert metadata['LABELS']['tier'] == 'group' and metadata['AUTO_REGISTER_GROUP'] == 'vm'
    assert json.loads(metadata['POD_PORTS'])[0]['containerPort'] == 8080
    assert metadata['PROXY_CONFIG']['readinessProbe']['httpGet'] == {'port': 8090}
    wait_for('its certificate to be shown', lambda: node.istiod.journal('certificate'))
    assert node.istiod.address in made['control_plane'] and 'CANONICAL_SERVICE' in made['not_taken_over']
    status, said = node.agentd.ctl_text('manifest', '--from', files, '--to', node.agentd.manifests, '--name', 'vm')
    assert status == 1 and 'is there already' in said


def test_after_a_reboot_the_kept_one_goes_on(node):
    machine = Identity(node, 'vm')
    node.agentd.start()
    wait_for('the kept one', machine.kept.exists)
    machine.wait_credential('issued certificate')
    machine.pod.remove_token()
    reboot(node)
    wait_for('a new one', lambda: machine.issued('certificate'))
    assert len(machine.issued('token')) == 1
    assert machine.pod.wait_served().is_served()


@pytest.mark.skipif(not SOAK, reason='AGENTD_SOAK')
def test_off_for_longer_than_the_certificate_lives(node):
    """It says that it is locked out, and why; a token heals it as it runs."""
    node.istiod.order('ttl', seconds=TTL)
    machine = Identity(node, 'vm')
    node.agentd.start()
    machine.wait_credential('issued certificate')
    wait_for('the kept one', machine.kept.exists)
    node.agentd.kill()
    machine.pod.remove_token()
    wait_for('its end', lambda: time.time() > node.istiod.issued()[-1]['not_after'])
    so_far = len(node.istiod.journal())
    reboot(node)
    wait_for('the reason', lambda: 'expired' in (machine.shown() or {}).get('refused', {}).get('kept certificate', ''))
    assert 'locked out' in machine.shown()['why_not'] and node.agentd.ctl_text('certs')[0] == 1
    assert not [r for r in node.istiod.journal()[so_far:] if r['event'] in ('certificate', 'csr-asked')]
    began = time.time()
    machine.pod.write_token()
    healed = wait_for('a certificate', lambda: machine.issued('token')[1:])[0]['time'] - began
    machine.wait_credential('issued certificate')
    measured.append(f'identity: a token healed a machine that was off for too long in {healed:.2f} s')


def test_a_provisioned_pair_needs_no_token(node):
    machine = Identity(node, 'vm', token=False)
    serial = machine.provision()
    node.agentd.start()
    wait_for('a certificate', lambda: machine.issued('certificate'))
    assert not machine.issued('token')
    assert node.istiod.journal('certificate')[0]['serial'] == serial
    machine.wait_credential('issued certificate')
    newer = machine.provision()  # two minutes newer than what istiod issues
    wait_for('the newer one to be shown', lambda: node.istiod.journal('certificate', serial=newer))
    machine.wait_credential('provisioned certificate')


BAD = {
    'another account': ({'uris': ['spiffe://cluster.local/ns/demo/sa/other']}, 'not for our identity'),
    'foreign trust domain': ({'uris': ['spiffe://other.td/ns/demo/sa/vm']}, 'its trust domain is'),
    'two names': ({'uris': ['spiffe://cluster.local/ns/demo/sa/vm', 'spiffe://cluster.local/ns/demo/sa/x']},
                  'exactly one subject alternative name'),
    'another root': ({'authority': 'b'}, 'does not lead to its roots'),
    'expired': ({'days': -1}, 'expired'),
    'world-readable': ({'mode': 0o644}, 'others than root can read'),
}


def test_a_bad_pair_is_refused_by_name_and_never_shown(node):
    machine = Identity(node, 'vm', token=False)
    node.agentd.start()
    for how, why in BAD.values():
        machine.provision(**how)
        wait_for(why, lambda why=why: why in str((machine.shown() or {}).get('refused')))
        assert 'locked out' in machine.shown()['why_not']
    assert not node.istiod.journal('certificate') and not node.istiod.issued()
    status, text = node.agentd.ctl_text('certs')
    assert status == 1 and 'locked out' in text
    machine.pod.write_token()
    wait_for('a certificate', lambda: machine.issued('token'))


def test_each_machine_has_its_own_connection(node):
    machines = [Identity(node, f'vm{n}') for n in range(2)]
    pods = [node.pod(f'web{n}', sa='vm0') for n in range(10)]  # of a machine's account, by token
    node.agentd.start()
    for machine in machines:
        machine.wait_credential('issued certificate')
    for pod in [*(m.pod for m in machines), *pods]:
        pod.start_envoy()
    by_peer = {}

    def all_there():
        by_peer.clear()
        closed = {r['stream'] for r in node.istiod.journal('close')}
        live = [s for s in node.istiod.journal('open') if s['stream'] not in closed]
        for s in live:
            by_peer.setdefault(s['peer'], []).append((s['identity'], s['by'], s['token_pod'] and s['token_pod']['uid']))
        return sorted(by for of in by_peer.values() for _, by, _ in of) == ['certificate'] * 2 + ['token'] * 10
    wait_for('a stream for each', all_there)
    for machine in machines:
        assert [of for of in by_peer.values() if (machine.identity, 'certificate', None) in of] == [
            [(machine.identity, 'certificate', None)]]
    assert {uid for of in by_peer.values() for _, by, uid in of if by == 'token'} == {p.uid for p in pods}


def test_a_refused_one_falls_back_to_the_token_once(node):
    machine = Identity(node, 'vm')
    node.agentd.start()
    machine.wait_credential('issued certificate')
    machine.pod.start_envoy()
    wait_for('its stream', lambda: machine.streams())
    node.istiod.order('revoke', serials=[r['serial'] for r in machine.issued('token')])
    node.istiod.order('listen', on='nothing')
    node.istiod.order('listen', on='grpc')
    wait_for('a second by token', lambda: len(machine.issued('token')) == 2)
    new = machine.issued('token')[-1]['serial']
    wait_for('the new one to be shown', lambda: node.istiod.journal('certificate', serial=new))
    wait_for('it to be taken', lambda: machine.streams()[-1]['by'] == 'certificate')
    assert not machine.shown()['why_not']


@pytest.mark.skipif(not SOAK, reason='AGENTD_SOAK')
def test_a_new_root_and_a_new_certificate_of_it(node):
    node.istiod.order('ttl', seconds=TTL)
    machine = Identity(node, 'vm')
    node.agentd.start()
    machine.wait_credential('issued certificate')
    machine.pod.remove_token()
    node.istiod.order('ca', issuer='b', roots=['a', 'b'])
    wait_for('one of the new root', lambda: node.istiod.issued(by='certificate', issuer='b'))
    node.istiod.order('ca', issuer='b', roots=['b'])
    so_far = len(machine.issued('certificate'))
    wait_for('another one', lambda: len(machine.issued('certificate')) > so_far)
    machine.wait_credential('issued certificate')


@pytest.mark.skipif(not SOAK, reason='AGENTD_SOAK')
def test_killed_at_each_renewal(node):
    """The pair that is kept matches, whenever both were killed, and leads back in without a token."""
    node.istiod.order('ttl', seconds=20)
    machine = Identity(node, 'vm')
    node.agentd.start()
    machine.wait_credential('issued certificate')
    machine.pod.remove_token()
    for kill in range(20):
        so_far = len(machine.issued('certificate'))
        reboot(node)
        wait_for('a certificate by the kept one', lambda so_far=so_far: len(machine.issued('certificate')) > so_far)
        time.sleep(kill / 1000)  # on, through what is done with it
        assert key_and_certificate_match(machine.kept)
    assert len(machine.issued('token')) == 1


def killed_at(node, pid, n):
    """A renewal during which the process dies at its n-th step; False: it made fewer."""
    with subprocess.Popen([sys.executable, '-m', 'tests.e2e.killer', str(pid), str(n)], stdout=subprocess.PIPE, text=True, cwd=TOP) as killer:
        assert killer.stdout.readline() == 'ready\n'
        issued = len(node.istiod.issued())
        node.istiod.order('resume', what='csr')
        wait_for('the answer', lambda: len(node.istiod.issued()) > issued or killer.poll() is not None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            killer.wait(STEPS_S)
        killed = killer.poll() is not None
        killer.kill()
    return killed


STEPS_S = 2  # beyond the answer, for all that is done with it


@pytest.mark.skipif(not SOAK, reason='AGENTD_SOAK')
@pytest.mark.parametrize('who', ['broker', 'worker'])
def test_killed_at_every_step_of_a_renewal(node, who):
    """What is kept matches, whenever one of the two died, and leads back in without a token."""
    machine = Identity(node, 'vm')
    node.agentd.start()
    wait_for('the kept one', machine.kept.exists)
    machine.wait_credential('issued certificate')
    machine.pod.remove_token()
    kept, steps = set(), 0
    for steps in range(1, 2000):
        node.istiod.order('pause', what='csr')
        asked = len(node.istiod.journal('csr-asked'))
        reboot(node)
        wait_for('a CSR', lambda n=asked: len(node.istiod.journal('csr-asked')) > n)
        if not killed_at(node, node.agentd.process.pid if who == 'broker' else node.agentd.worker_pid(), steps):
            break
        assert key_and_certificate_match(machine.kept)
        kept.add(machine.kept.read_bytes())
    measured.append(f'identity: the {who} was killed at each of {steps} steps of a renewal; {len(kept)} different pairs were kept')
    machine.wait_credential('issued certificate')
    assert steps > 20 and len(machine.issued('token')) == 1


@pytest.mark.skipif(not SOAK, reason='AGENTD_SOAK')
def test_nobody_reaches_anothers_channel(node, tries=1000):
    """By its own socket or by the machine's, with the machine's node; of its account, or of another; or by a manifest that claims as much."""
    node.agentd.plane.update(opens_per_second=1000, opens_burst=1000, pod_opens_per_second=1000, pod_opens_burst=1000)
    machine, evil, other = Identity(node, 'vm'), node.pod('evil', sa='vm'), node.pod('other')
    liar = node.pod('liar', sa='vm', manifest=False)
    liar.write_token()
    liar.remove_token()
    liar.write_manifest(identity='certificate')
    node.istiod.set('all', clusters=[], listeners=[])
    node.istiod.order('ttl', seconds=30)  # it renews meanwhile
    node.agentd.start()
    machine.wait_credential('issued certificate')
    machine.pod.start_envoy()
    wait_for('its stream', machine.streams)
    claimed = json_format.ParseDict({k: machine.pod.bootstrap()['node'][k] for k in ('id', 'metadata')}, base_pb2.Node())
    request = clients.listener_request([claimed.SerializeToString()])
    for pod in evil, other, liar:
        pod.wait_served()
    waiting = [liar.submit(clients.ads, liar.mount / 'XDS', [request]) for _ in range(3)]
    ends = collections.Counter()
    for n in range(tries):
        pod, path = random.choice((evil, other)), random.choice((evil, other, machine.pod)).mount / 'XDS'
        ends.update(e if e == 'answered' else 'ended' for e in pod.call(clients.ads, path, [request]))
        if n % 100 == 0:
            liar.write_manifest(env={'ISTIO_META_TRY': str(n)})
    assert ends['answered'] and ends['ended'] and sum(ends.values()) == tries
    nodes = {r['stream']: r['id'] for r in node.istiod.journal('node')}
    opens, csrs = node.istiod.journal('open'), node.istiod.journal('csr-asked')
    own = {r['peer'] for r in opens if r['by'] == 'certificate'}
    assert {nodes.get(r['stream']) for r in opens if r['peer'] in own} <= {claimed.id, None}
    assert all(r['by'] == 'certificate' and r['identity'] == machine.identity for r in (*opens, *csrs) if r['peer'] in own)
    assert {r['peer'] for r in csrs if r['by'] == 'certificate'} & own
    assert not any('liar' in i for i in nodes.values())
    node.agentd.kill()  # so that the liar's clients end
    assert all(w.result(60) for w in waiting)
    measured.append(f'identity: {tries} tries to reach another channel: {dict(ends)}, 0 there')


def test_a_disk_that_takes_nothing_is_said(node):
    node.identities.mkdir()
    node.identities.chmod(0o777)
    machine = Identity(node, 'vm')
    node.agentd.start()
    machine.wait_credential('issued certificate')
    wait_for('the reason', lambda: "not root's alone" in (machine.shown() or {}).get('why_not', ''))
    status, text = node.agentd.ctl_text('status')
    assert status == 1 and f'problem: {machine.pod.label}: the newest certificate is not kept on disk' in text and "not root's alone" in text
    assert machine.pod.wait_served().is_served()
    node.identities.chmod(0o700)
    wait_for('it to be kept', machine.kept.exists)
    wait_for('no problem', lambda: not machine.shown()['why_not'])
    assert node.agentd.ctl_text('status')[0] == 0


@contextlib.contextmanager
def hanging(directory):
    """Whoever writes there waits."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def test_a_disk_that_hangs_holds_nobody_up(node):
    """Nor does the process that waits for it keep anything of an agentd that has ended."""
    node.identities.mkdir(mode=0o700)
    machine, says = Identity(node, 'vm'), f'the disk of {node.identities} has not answered for '
    with hanging(node.identities):
        for run in 'first', 'second':
            node.agentd.start()
            machine.wait_credential('issued certificate')
            wait_for('status to say it', lambda: says in node.agentd.ctl_text('status')[1])
            assert node.agentd.ctl_text('status')[0] == 1
            node.pod(run).wait_served()
            assert machine.pod.is_served()
            assert node.agentd.process.stop(60) == 0  # but for the one that waits
        assert not machine.kept.exists()
        node.agentd.start()
        machine.wait_credential('issued certificate')
    wait_for('it to be kept', machine.kept.exists)
    assert key_and_certificate_match(machine.kept)
    wait_for('no problem', lambda: node.agentd.ctl_text('status')[0] == 0)


@contextlib.contextmanager
def unread(file):
    """Whoever opens it waits, until its lease is given back (fcntl(2))."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open(file, os.O_RDWR)
    try:
        wait_for('nobody else to have it open', lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK) == 0)
        yield
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)


def test_a_disk_that_gives_nothing_holds_nobody_up(node):
    machine = Identity(node, 'vm')
    node.agentd.start()
    wait_for('it to be kept', machine.kept.exists)
    with unread(machine.kept):
        reboot(node)
        node.pod('other').wait_served()
        wait_for('status to say it', lambda: f'the disk of {node.identities} has not' in node.agentd.ctl_text('status')[1])
        assert machine.pod.wait_served().is_served()  # by its token
        wait_for('another one', lambda: len(machine.issued('token')) == 2)
        assert node.agentd.process.stop(60) == 0
