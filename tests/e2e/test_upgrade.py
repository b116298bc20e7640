"""Another agentd takes the place of the one that runs: in place by a signal, or from beside it.  No pod notices."""
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading

import pytest

from . import mesh
from .conftest import measured, start_pair
from .hammer import Hammer
from .node import READY, Agentd, Said
from .rest import fds_of_broker, open_fds
from .run import Process, wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
UPGRADES = 200 if SOAK else 10
PROGRAMS = ('agentd', 'agentd-worker')
TABLE_VERSION, TABLE_NAME = 1, 128


class Release:
    """The programs of this agentd in a directory of its own, where they can be replaced."""

    def __init__(self, agentd):
        self._from, self.dir = agentd._bin, agentd.dir / 'bin'
        self.dir.mkdir(exist_ok=True)
        for name in (*PROGRAMS, 'agentctl'):
            self.install(name, self._from / name)
        agentd._bin = self.dir

    def install(self, name, source, change=None, mode=0o755, uid=0):
        """Renamed into place, as packages are."""
        new = self.dir / f'{name}.new'
        shutil.copyfile(source, new)
        if change:
            change(new)
        os.chown(new, uid, -1)
        new.chmod(mode)
        new.rename(self.dir / name)

    def install_all(self):
        for name in PROGRAMS:
            self.install(name, self._from / name)


def crashing(program):
    """Its first instruction is an illegal one."""
    image = bytearray(program.read_bytes())
    entry, headers = struct.unpack_from('<QQ', image, 24)
    size, count = struct.unpack_from('<HH', image, 54)
    for n in range(count):
        kind, _, offset, address, _, length = struct.unpack_from('<IIQQQQ', image, headers + n * size)
        if kind == 1 and address <= entry < address + length:
            at = offset + entry - address
            image[at:at + 2] = b'\x0f\x0b'
    program.write_bytes(image)


def settled_fds(agentd, pods):
    """With the namespaces of all pods."""
    def settled():
        found = fds_of_broker(agentd.process.pid)
        return found and sum(link.startswith('net:') for link in found.values()) == 1 + len(pods) and found
    return wait_for('the namespaces of the node and of its pods', settled)


def wait_for_as_many(agentd, before):
    """No more, and no fewer."""
    try:
        wait_for('as many descriptors as before', lambda: len(fds_of_broker(agentd.process.pid) or ()) == len(before))
    except TimeoutError as e:
        raise AssertionError(f'{before} became {open_fds(agentd.process.pid)}') from e


def connected(agentd):
    return agentd.ctl('status')['settled'] and all(x['ads']['connected'] for x in agentd.ctl('xds')['xds'])


def upgraded(agentd):
    """With the streams of all Envoys."""
    said = Said(agentd)
    agentd.process.send(signal.SIGUSR2)
    said.wait(READY)
    wait_for('the streams', lambda: connected(agentd))


def nobody_noticed(hammer, load, node, pair):
    struck, served = hammer.stop(), load.stop()
    assert [struck[k] for k in ('refused', 'reset', 'late')] == [0, 0, 0], struck
    assert served['failed'] == 0, served
    wait_for('the streams', lambda: connected(node.agentd))
    assert len(node.istiod.issued()) == 2
    assert len(node.agentd.ctl('pods')['pods']) == len(pair)
    measured.append(f'{struck["ok"]} connections, {served["ok"]} requests')


@pytest.mark.timeout(3600 if SOAK else 600)
def test_an_upgrade_in_place_is_not_noticed(node):
    """The same pid, the same sockets, another file."""
    release = Release(node.agentd)
    pair = start_pair(node)
    client, server = pair
    load, hammer = client.load(mesh.OUTBOUND), Hammer(server)
    upgraded(node.agentd)  # the first one opens what stays open
    before, pid = settled_fds(node.agentd, pair), node.agentd.process.pid
    for _ in range(UPGRADES):
        worker = node.agentd.worker_pid()
        release.install_all()
        upgraded(node.agentd)
        hammer.more()
        assert node.agentd.process.running() and node.agentd.worker_pid() != worker
        assert os.stat(f'/proc/{pid}/exe').st_ino == (release.dir / 'agentd').stat().st_ino
        wait_for_as_many(node.agentd, before)
    load.more(30)
    nobody_noticed(hammer, load, node, pair)


# What is wrong with the new release, and what the log says of it.
FAULTS = {
    'missing': (lambda r: (r.dir / 'agentd').unlink(), 'agentd: No such file'),
    'no worker': (lambda r: (r.dir / 'agentd-worker').unlink(), 'agentd-worker: No such file'),
    'not root\'s': (lambda r: r.install('agentd', r._from / 'agentd', uid=1338), 'written by others than root'),
    'open to all': (lambda r: r.install('agentd', r._from / 'agentd', mode=0o777), 'written by others than root'),
    'open worker': (lambda r: r.install('agentd-worker', r._from / 'agentd-worker', mode=0o775),
                    'agentd-worker can be written by others than root'),
    'no program': (lambda r: r.install('agentd', '/etc/hostname'), 'failed its trial: exit code 127'),
    'crashing': (lambda r: r.install('agentd', r._from / 'agentd', crashing), 'failed its trial: signal 4'),
    'exits 1': (lambda r: r.install('agentd', '/bin/false'), 'failed its trial: exit code 1'),
    'crashing worker': (lambda r: r.install('agentd-worker', r._from / 'agentd-worker', crashing),
                        'agentd-worker: its check failed (signal 4'),
}


def test_a_bad_release_is_refused_and_all_goes_on(node):
    release = Release(node.agentd)
    pair = start_pair(node)
    client, server = pair
    load, hammer = client.load(mesh.OUTBOUND), Hammer(server)
    worker, before = node.agentd.worker_pid(), settled_fds(node.agentd, pair)
    for name, (spoil, says) in FAULTS.items():
        release.install_all()
        spoil(release)
        said = Said(node.agentd)
        node.agentd.process.send(signal.SIGUSR2)
        assert says in said.wait('no upgrade, agentd '), f'{name}: {said.text()}'
        hammer.more(3)
        assert node.agentd.worker_pid() == worker, name
        wait_for_as_many(node.agentd, before)
    release.install_all()
    upgraded(node.agentd)
    nobody_noticed(hammer, load, node, pair)


def refusal(node):
    status, text = node.agentd.ctl_text('status')
    assert status == (1 if 'problem: ' in text else 0)
    return text if status else ''


def test_a_wrong_setting_is_the_reason(node):
    """The new program reads its settings, and its words are in the log and in agentctl's answer."""
    node.agentd.start()
    config = node.agentd.dir / 'agentd.yaml'
    good, said = config.read_text(), Said(node.agentd)
    config.write_text(f'csr_per_secnod: 1\n{good}')
    node.agentd.process.send(signal.SIGUSR2)
    why = 'failed its trial: exit code 1: agentd.yaml: line 1: csr_per_secnod: no such key; nearest: csr_per_second'
    assert why in said.wait('no upgrade, agentd ')
    wait_for('agentctl to say it', lambda: why in refusal(node))
    assert node.agentd.ctl_text('ready')[0] == 0
    config.write_text(good)
    upgraded(node.agentd)
    assert 'no upgrade' not in refusal(node)


def test_absent_roots_are_no_reason(node):
    """They are outside of the program, and the agentd that runs lives without them, too."""
    node.agentd.start()
    root = node.agentd.root_file
    pem = root.read_bytes()
    for absent in (lambda: root.write_text('garbage'), root.unlink):
        absent()
        upgraded(node.agentd)
    root.write_bytes(pem)
    wait_for('the control plane', lambda: node.agentd.ctl_text('status')[0] == 0)


# --- beside it ---


def beside(node, name):
    """Another agentd of the same node, which can be started with --take-over."""
    other = Agentd(node.dir / name, node.cgroup(name), node.istiod, node.agentd.mode)
    other.run, other.manifests = node.agentd.run, node.agentd.manifests
    other.flags = ['--take-over']
    return other


def test_a_hand_over_is_not_noticed(node):
    pair = start_pair(node)
    client, server = pair
    load, hammer = client.load(mesh.OUTBOUND), Hammer(server)
    for n in range(3):
        old, new = node.agentd, beside(node, f'agentd{n}')
        node.agentd = new
        new.start()
        assert old.process.wait() == 0
        assert 'has taken over' in old.log.read_text() and not old.complaints()
        hammer.more()
    load.more(30)
    nobody_noticed(hammer, load, node, pair)


def test_one_that_lingers_ends_when_told(node):
    """Whoever restarts what ends must not see it end: it would take over from its successor."""
    node.agentd.flags = ['--take-over', '--linger']
    node.agentd.start()
    new = beside(node, 'new')
    new.start()
    log = node.agentd.log.read_text
    wait_for('the old one to have nothing left', lambda: 'wait for SIGTERM' in log())
    assert new.worker_pid() and node.agentd.process.running()
    node.agentd.process.send(signal.SIGTERM)
    assert node.agentd.process.wait() == 0
    wait_for('the new one to be ready', lambda: new.ctl_text('ready') == (0, 'ready\n'))


def hanging(node, name):
    """Its worker does nothing, for ever."""
    other = beside(node, name)
    release = Release(other)
    release.install('agentd-worker', shutil.which('sleep'))
    other.flags += ['infinity']
    return other


def launch(other):
    """Without waiting for an answer."""
    return Process([other._bin / 'agentd', '--run', other.run, '--manifests', other.manifests, '--root-file',
                    f'0={other.root_file}', *other.flags], other.log, other.cgroup)


def test_a_hand_over_that_fails_is_taken_back(node):
    pair = start_pair(node)
    client, server = pair
    load, hammer = client.load(mesh.OUTBOUND), Hammer(server)
    for name, end in (('killed', signal.SIGKILL), ('ended', signal.SIGTERM)):
        other, said = hanging(node, name), Said(node.agentd)
        process = launch(other)
        wait_for('the new one to have it all', lambda log=other.log: ', worker ' in log.read_text())
        process.send(end)
        process.wait()
        said.wait('has not taken over, this one goes on')
        said.wait(READY)
        assert (node.agentd.run / 'lock').read_text() == f'{node.agentd.process.pid}\n'
        hammer.more()
    # One that refuses its own configuration.
    other, said = beside(node, 'refusing'), Said(node.agentd)
    other.flags += ['--csr-per-second', '0']
    assert launch(other).wait() != 0
    said.wait(READY)
    hammer.more()
    nobody_noticed(hammer, load, node, pair)


def test_who_does_not_ask_is_told_how_to(node):
    node.agentd.start()
    other = beside(node, 'other')
    other.flags = []
    assert launch(other).wait() == 1
    assert 'take its place with --take-over' in other.log.read_text()


def test_there_may_be_nothing_to_take_over(node):
    node.agentd.flags = ['--take-over']
    node.agentd.start()


# --- tables of other releases ---


def table(version, names=(), entry_size=TABLE_NAME + 4):
    """A memfd; its entries are descriptors of /dev/null."""
    fd = os.memfd_create('kept', 0)
    entries = [(n, os.open('/dev/null', os.O_RDONLY)) for n in names]
    for _, e in entries:
        os.set_inheritable(e, True)
    os.write(fd, b'agentd:kept\0' + struct.pack('<III', version, entry_size, len(entries)) + b''.join(
        n.encode().ljust(TABLE_NAME, b'\0') + struct.pack('<i', e) for n, e in entries))
    return fd, [e for _, e in entries]


def run_with(agentd, fd, others, *flags):
    config = agentd.dir / 'agentd.yaml'
    return subprocess.Popen(
        [agentd._bin / 'agentd', '--run', agentd.run, '--manifests', agentd.manifests, '--config', config,
         '--root-file', f'0={agentd.root_file}', *flags], env={**os.environ, 'AGENTD_KEPT': str(fd)},
        pass_fds=[fd, *others], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_tables_of_other_versions(node):
    """A trial refuses what it cannot read; who gets it all the same starts without, and says so once."""
    node.agentd.start()  # writes the configuration
    node.agentd.stop()
    for version, entry_size in ((TABLE_VERSION - 1, 100), (TABLE_VERSION + 1, 200), (TABLE_VERSION, 132)):
        known = version == TABLE_VERSION
        fd, others = table(version, ['stale.sds'], entry_size)
        trial = run_with(node.agentd, fd, others, '--check-state')
        said, _ = trial.communicate(timeout=60)
        assert (trial.returncode == 0) == known, said
        assert known or f'has version {version}' in said
        process = run_with(node.agentd, fd, others)
        wait_for('agentd to answer', lambda: node.agentd.ctl('status'))
        held = wait_for('it to sleep', lambda: fds_of_broker(process.pid)).values()
        process.terminate()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert said.count('nothing is taken over from the previous agentd') == (0 if known else 1)
        assert not [h for h in held if 'memfd:kept' in h]
        for f in (fd, *others):
            os.close(f)


class Caller:
    """Who connects to the kubelet's entry all the time, as the kubelet does for each call."""

    def __init__(self, entry):
        self._entry, self._end = str(entry), threading.Event()
        self.calls = self.refused = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._end.wait(0.05):
            with socket.socket(socket.AF_UNIX) as s:
                try:
                    s.connect(self._entry)
                except OSError:
                    self.refused += 1
                self.calls += 1

    def more(self, n=5):
        goal = self.calls + n
        wait_for(f'{n} more calls', lambda: self.calls >= goal)

    def stop(self):
        self._end.set()
        self._thread.join()


def test_the_kubelets_socket_goes_over(node):
    """The same socket behind the link: the kubelet is never refused."""
    kubelet = node.dir / 'kubelet'
    (kubelet / 'pods').mkdir(parents=True)
    (kubelet / 'plugins_registry').mkdir()
    node.agentd.flags = ['--kubelet-root', str(kubelet)]
    node.agentd.start()
    csi = node.agentd.run / 'csi.sock'
    before = csi.stat().st_ino, csi.stat().st_mtime_ns
    caller = Caller(csi)
    try:
        for _ in range(2):
            upgraded(node.agentd)
            caller.more()
            said = Said(node.agentd)
            os.kill(node.agentd.worker_pid(), signal.SIGKILL)
            said.wait(READY)
            caller.more()
        old = node.agentd.process
        node.agentd.flags.append('--take-over')
        node.agentd.start()
        assert old.wait() == 0
        caller.more()
    finally:
        caller.stop()
    assert (csi.stat().st_ino, csi.stat().st_mtime_ns) == before
    assert not caller.refused
    node.agentd.stop()
    entry, = (kubelet / 'plugins_registry').iterdir()
    assert entry.is_symlink()  # or the kubelet would forget us
