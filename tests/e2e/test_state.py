"""What outlives the worker, and the broker: certificates on a tmpfs, or in memory."""
import os
import re
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from . import clients
from .replacing import upgrade
from .run import sh, wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))


def fetch(pod, timeout=clients.TIMEOUT_S):
    return pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'], timeout)


def certificate(pod):
    got = fetch(pod)
    assert 'default' in got, got
    return got['default']['chain']


def wait_ready(node):
    """Every pod of a manifest: an agentd that has just begun knows of none."""
    expected = len(list(node.agentd.manifests.glob('*.yaml')))

    def served():
        pods = node.agentd.ctl('pods')['pods']
        return len(pods) == expected and all(p['ready'] for p in pods)
    wait_for('all pods to be served', served)


def start(node):
    node.agentd.start()
    wait_ready(node)


def serve(node, *pods):
    node.agentd.start()
    for pod in pods:
        pod.wait_served()


def state(node, kind='cert'):
    return node.agentd.run / 'state' / kind


def stored(node):
    """Service account -> its file."""
    files = [f for f in state(node).iterdir() if not f.name.startswith('.')]
    return {re.search(r'^service_account: (.*)$', f.read_text(), re.M)[1]: f for f in files}


def wait_stored(node, *accounts):
    wait_for(f'{accounts} to be stored', lambda: stored(node).keys() == set(accounts))


def asked(node):
    return len(node.istiod.journal('csr-asked'))


def kill_worker(node, ready=True):
    old = node.agentd.worker_pid()
    os.kill(old, signal.SIGKILL)
    wait_for('the next worker', lambda: set(node.agentd.cgroup.pids()) - {old, node.agentd.process.pid})
    if ready:
        wait_ready(node)


def kill_broker(node):
    os.kill(node.agentd.process.pid, signal.SIGKILL)
    node.agentd.process.wait()
    wait_for('the worker to be gone', lambda: not node.agentd.cgroup.pids())
    start(node)


def kill_both(node):
    node.agentd.kill()
    start(node)


KILL = {'worker': kill_worker, 'broker': kill_broker, 'both': kill_both}
TMPFS, MEMORY = {'state_keys': 'tmpfs'}, {'state_keys': 'memory'}


@pytest.mark.parametrize(('settings', 'who'), [(TMPFS, 'worker'), (TMPFS, 'broker'), (TMPFS, 'both'),
                                               (MEMORY, 'worker')], ids=['worker', 'broker', 'both', 'memory'])
def test_certificates_survive_without_istiod(node, settings, who):
    """The same certificate, no CSR, and a new pod of the account is served; each by its own token."""
    node.agentd.settings.update(settings)
    pods = [node.pod('one', sa='shared'), node.pod('two', sa='shared'), node.pod('three')]
    serve(node, *pods)
    before = {p.name: certificate(p) for p in pods}
    if settings is TMPFS:
        wait_stored(node, 'shared', 'three')
    else:
        assert not stored(node)
    node.istiod.process.kill()
    thief = node.pod('thief', sa='shared')
    thief.write_token(ttl=-100)
    # A worker that dies again and again is replaced ever later, up to half a minute.
    for _ in range(2 if not SOAK else 5 if who == 'worker' else 20):
        KILL[who](node)
        assert {p.name: certificate(p) for p in pods} == before
    late = node.pod('late', sa='shared').wait_served()
    assert certificate(late) == before['one']
    assert fetch(thief.wait_served(), timeout=2)['code'] == 'DEADLINE_EXCEEDED'
    assert asked(node) == 2


def test_keys_in_memory_end_with_the_broker(node):
    """state_keys: memory: no key is in a file; both killed costs one certificate for each account."""
    node.agentd.settings['state_keys'] = 'memory'
    pods = [node.pod('one', sa='shared'), node.pod('two', sa='shared'), node.pod('three')]
    serve(node, *pods)
    for pod in pods:
        certificate(pod)
    kill_both(node)
    for pod in pods:
        certificate(pod)
    assert asked(node) == 4 and not stored(node)
    # Back to files: what is in memory moves.
    node.agentd.settings['state_keys'] = 'tmpfs'
    kill_both(node)
    for pod in pods:
        certificate(pod)
    wait_stored(node, 'shared', 'three')
    assert asked(node) == 6


@pytest.mark.parametrize('settings', [TMPFS, MEMORY], ids=['tmpfs', 'memory'])
def test_certificates_survive_an_upgrade(node, settings):
    """In place, without istiod: both kinds of state go over to the next broker."""
    node.agentd.settings.update(settings)
    pods = [node.pod('one', sa='shared'), node.pod('two', sa='shared'), node.pod('three')]
    serve(node, *pods)
    before = {p.name: certificate(p) for p in pods}
    if settings is TMPFS:
        wait_stored(node, 'shared', 'three')
    node.istiod.process.kill()
    for _ in range(2):
        upgrade(node)
        assert {p.name: certificate(p) for p in pods} == before
    assert asked(node) == 2


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1:]


DAMAGE = {
    'empty': lambda data: b'',
    'cut': lambda data: data[:-1],
    'half': lambda data: data[:len(data) // 2],
    'longer': lambda data: data + b'\n',
    'head': lambda data: flipped(data, data.index(b'namespace') + 12),
    'key': lambda data: flipped(data, data.index(b'PRIVATE KEY') + 60),
    'chain': lambda data: flipped(data, len(data) - 200),
    'digest': lambda data: flipped(data, 30),
    'zeros': lambda data: bytes(len(data)),
    'large': lambda data: data * 1000,
}


def test_a_damaged_file_costs_one_certificate(node):
    """It is ignored, said, and made anew, and so is nobody else's; a newer release's is left alone."""
    pods = {name: node.pod(name) for name in [*DAMAGE, 'good', 'swapped', 'newer']}
    serve(node, *pods.values())
    before = {name: certificate(pod) for name, pod in pods.items()}
    wait_stored(node, *pods)
    assert node.agentd.stop() == 0
    files = stored(node)
    for name, damage in DAMAGE.items():
        files[name].write_bytes(damage(files[name].read_bytes()))
    files['swapped'].write_bytes(files['good'].read_bytes())  # somebody else's
    newer = files['newer'].read_text().replace('version: 1', 'version: 2')
    files['newer'].write_text(newer)
    pods['newer'].remove_manifest()
    read = len(node.agentd.log.read_text())
    start(node)
    after = {name: certificate(pod) for name, pod in pods.items() if name != 'newer'}
    assert {name for name, chain in after.items() if chain == before[name]} == {'good'}
    assert asked(node) == len(pods) + len(DAMAGE) + 1
    log = node.agentd.log.read_text()[read:]
    assert len(re.findall('is ignored: damaged', log)) == len(DAMAGE)  # 'swapped' too; 'large' is the broker's
    assert len(re.findall('state is ignored: .*larger than', log)) == 1
    assert len(re.findall('left alone: version 2', log)) == 1 and files['newer'].read_text() == newer
    wait_for('each to be stored again', lambda: len(stored(node)) == len(pods))
    kill_both(node)
    assert {name: certificate(pods[name]) for name in after} == after


def test_another_configuration_does_not_match(node):
    """What was stored for another control plane is not used, and goes."""
    pod = node.pod('one')
    serve(node, pod)
    before = certificate(pod)
    wait_stored(node, 'one')
    assert node.agentd.stop() == 0
    node.agentd.plane['name'] = 'other'
    start(node)
    assert certificate(pod) != before and asked(node) == 2
    wait_stored(node, 'one')
    assert 'control_plane: other\n' in stored(node)['one'].read_text()


def fill(directory):
    with open(directory / 'fill', 'wb', buffering=0) as f, pytest.raises(OSError, match='No space'):
        while True:
            f.write(bytes(1 << 16))


FAULTS = {
    'full': (fill, lambda d: (d / 'fill').unlink(), 'No space left'),
    'read-only': (lambda d: sh('mount', '-o', 'remount,ro', d), lambda d: sh('mount', '-o', 'remount,rw', d),
                  'Read-only file system'),
}


@pytest.mark.parametrize('fault', FAULTS)
def test_state_that_cannot_be_written(node, fault):
    """Running pods are unaffected, new ones get certificates, it is said once, and it passes by itself."""
    spoil, mend, says = FAULTS[fault]
    one = node.pod('one')
    serve(node, one)
    before = certificate(one)
    wait_stored(node, 'one')
    spoil(state(node, ''))
    late = [node.pod(name).wait_served() for name in ('two', 'three', 'four')]
    assert len({certificate(p) for p in late}) == 3 and certificate(one) == before
    log = wait_for('it to be said', lambda: re.findall(f'certificates are not stored.*{says}',
                                                       node.agentd.log.read_text()))
    assert len(log) == 1 and stored(node).keys() == {'one'}
    kill_worker(node, ready=False)  # what cannot be kept is said of those pods; the account that was stored costs nothing
    assert certificate(one) == before
    assert asked(node) - 4 <= 3
    mend(state(node, ''))
    last = node.pod('last').wait_served()
    certificate(last)
    for pod in late:
        certificate(pod)
    wait_stored(node, 'one', 'two', 'three', 'four', 'last')


def test_only_root_reaches_the_state(node):
    """A tmpfs of its own, for root alone, that is not swapped out."""
    pod = node.pod('one')
    serve(node, pod)
    certificate(pod)
    wait_stored(node, 'one')
    folder = state(node, '')
    assert folder.stat().st_dev != node.agentd.run.stat().st_dev
    for path in [folder, *folder.rglob('*')]:
        st = path.lstat()
        assert (st.st_uid, stat.S_IMODE(st.st_mode)) == (0, 0o700 if path.is_dir() else 0o600), path
    lines = [line for line in Path('/proc/self/mountinfo').read_text().splitlines()
             if line.split()[4] == str(folder)]
    assert len(lines) == 1 and ' - tmpfs ' in lines[0] and 'size=65536k' in lines[0]
    if tuple(map(int, os.uname().release.split('-')[0].split('.')[:2])) >= (6, 4):
        assert 'noswap' in lines[0]
    r = subprocess.run(['setpriv', '--reuid=1338', '--regid=1338', '--clear-groups', 'ls', folder],
                       capture_output=True, check=False)
    assert r.returncode != 0
    # A second broker mounts nothing on it.
    kill_both(node)
    assert [line for line in Path('/proc/self/mountinfo').read_text().splitlines()
            if line.split()[4] == str(folder)] == lines
    node.agentd.stop()
    folder.chmod(0o755)
    with pytest.raises(RuntimeError, match='must be root.s alone'):
        node.agentd.start()
