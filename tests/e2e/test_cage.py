"""The running worker has nothing but what it needs, and its memory is its own.

That it can do its work so is what every other test here shows, for all of them run in the cage.
"""
import contextlib
import ctypes
import os
import re
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from . import clients
from .run import wait_for
from .test_isolation import sans

BROKER_CAPS = {'DAC_READ_SEARCH': 2, 'KILL': 5, 'SETGID': 6, 'SETUID': 7, 'SETPCAP': 8, 'NET_ADMIN': 12, 'SYS_ADMIN': 21}
NOBODY = 65534
PTRACE_ATTACH = 16


def status(pid, task=''):
    text = Path(f'/proc/{pid}/{task}status').read_text()
    return dict(line.split(':\t', 1) for line in text.splitlines())


def served(node):
    pod = node.pod('one')
    node.agentd.start()
    pod.wait_served()
    assert pod.is_served()
    return pod


@pytest.mark.parametrize('mode', ['release', 'asan'])
def test_the_worker_is_confined(make_node, mode):
    node = make_node(mode=mode)
    served(node)
    worker = node.agentd.worker_pid()
    uid = status(worker)['Uid'].split()[0]
    assert uid not in ('0', '1337')
    tasks = os.listdir(f'/proc/{worker}/task')
    assert len(tasks) > 2  # those that were made in the cage are in it
    for task in tasks:
        s = status(worker, f'task/{task}/')
        assert {s[f'Cap{which}'] for which in ('Inh', 'Prm', 'Eff', 'Bnd', 'Amb')} == {'0' * 16}
        assert (s['NoNewPrivs'], s['Seccomp']) == ('1', '2')
        assert set(s['Uid'].split()) | set(s['Gid'].split()) == {uid} and not s['Groups'].strip()
    # Room for all descriptors before there are threads: with them the kernel takes 10 ms each time that it makes more.
    limits = Path(f'/proc/{worker}/limits').read_text()
    files = int(re.search(r'^Max open files +(\d+) ', limits, re.M)[1])
    assert int(status(worker)['FDSize']) >= min(files, 16384)
    assert re.search(r'^Max core file size +0 +0 ', limits, re.M)

    said = node.agentd.ctl('status')
    assert said['confined'] and said['cage'].startswith('seccomp, ')
    assert f'cage           {said["cage"]}' in node.agentd.ctl_text('status')[1]
    assert 'agentd_cage_level{protection="seccomp"} 1' in metrics(node)

    broker = status(node.agentd.process.pid)
    expected = f'{sum(1 << bit for bit in BROKER_CAPS.values()):016x}'
    assert (broker['CapPrm'], broker['CapEff'], broker['CapBnd']) == (expected,) * 3
    assert (broker['NoNewPrivs'], broker['Seccomp'], broker['Seccomp_filters']) == ('1', '2', '1')  # with no systemd
    node.agentd.process.send(signal.SIGUSR2)
    wait_for('the next agentd', lambda: node.agentd.worker_pid() != worker and node.agentd.ctl('status'))
    assert status(node.agentd.process.pid)['Seccomp_filters'] == '1'


def metrics(node):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(node.agentd.run / 'admin.sock'))
        s.sendall(b'GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n')
        return b''.join(iter(lambda: s.recv(65536), b'')).decode()


def as_user(uid, function, *args):
    """function(*args) in a child that is this user, with nothing more; what it returned, as a small number."""
    pid = os.fork()
    if pid == 0:
        code = 255
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            code = function(*args)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def attach(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.ptrace(PTRACE_ATTACH, pid, None, None) else 0


def open_memory(pid):
    try:
        with open(f'/proc/{pid}/mem', 'rb'):
            return 0
    except OSError as e:
        return e.errno


def test_memory_stays_in_the_worker(make_node):
    """No debugger but root's, no core."""
    node = make_node(mode='release')
    served(node)
    worker = node.agentd.worker_pid()
    own = int(status(worker)['Uid'].split()[0])
    for user in (NOBODY, own):
        assert as_user(user, attach, worker) == 1  # EPERM
        assert as_user(user, open_memory, worker) == 13  # EACCES
    cwd = Path(f'/proc/{worker}/cwd').resolve()
    before = set(os.listdir(cwd))
    os.kill(worker, signal.SIGABRT)
    wait_for('the worker to be gone', lambda: not Path(f'/proc/{worker}').exists())
    assert not [f for f in set(os.listdir(cwd)) - before if 'core' in f]
    assert 'core dumped' not in node.agentd.log.read_text()


class Resolver:
    """A DNS server that knows one name, at an address of 127/8 of its own."""

    def __init__(self, name, address):
        self._name = b''.join(bytes([len(p)]) + p.encode() for p in name.split('.')) + b'\0'
        self._answer = socket.inet_aton(address)
        pid = os.getpid()
        self.address = f'127.{1 + pid // 65536 % 250}.{pid // 256 % 256}.{pid % 255 + 1}'
        self.asked = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self.address, 53))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                query, peer = self._socket.recvfrom(1500)
                if not query:
                    return
                end = 12 + query[12:].index(b'\0') + 5
                name, kind = query[12:end - 4], query[end - 4:end - 2]
                known = name.lower() == self._name and kind == b'\0\1'
                self.asked += known
                head = query[:2] + (b'\x81\x80' if name.lower() == self._name else b'\x81\x83')
                answer = b'\xc0\x0c\0\1\0\1' + struct.pack('>IH', 1, 4) + self._answer if known else b''
                self._socket.sendto(head + b'\0\1' + struct.pack('>H', known) + b'\0\0\0\0' + query[12:end] + answer, peer)

    def close(self):
        with contextlib.suppress(OSError):  # it is not connected, and wakes the thread all the same
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


@pytest.mark.parametrize('resolver', ['ares', 'native'])
@pytest.mark.parametrize('name', ['localhost', 'istiod.e2e.test'])
def test_istiod_by_name(make_node, monkeypatch, tmp_path, resolver, name):
    """Both resolvers of grpc read their files and ask their server from inside the cage."""
    monkeypatch.setenv('GRPC_DNS_RESOLVER', resolver)
    node = make_node(mode='release')
    dns = Resolver(name, '127.0.0.1')
    try:
        conf = node.dir / 'resolv.conf'
        conf.write_text(f'nameserver {dns.address}\n')
        node.agentd.around = ['unshare', '--mount', 'sh', '-c', 'mount --bind "$0" /etc/resolv.conf && exec "$@"', conf]
        port = node.istiod.address.rpartition(':')[2]
        node.agentd.plane['address'] = f'{name}:{port}'
        pod = served(node)
        got = pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])
        assert sans(got['default']['chain'])
        assert (dns.asked > 0) == (name != 'localhost')
    finally:
        dns.close()


def test_no_privsep_says_so(make_node):
    node = make_node(mode='release')
    node.agentd.flags = ['--no-privsep']
    served(node)
    assert status(node.agentd.worker_pid())['Seccomp_filters'] == '1'  # the broker's own
    assert node.agentd.ctl('status')['confined'] is False
    code, text = node.agentd.ctl_text('status')
    assert code == 1 and 'the worker is NOT confined' in text
    assert re.search('level=warn .*the worker is NOT confined', node.agentd.log.read_text())


def test_check_shows_the_cage(node):
    node.agentd.start()
    node.agentd.stop()
    a = node.agentd
    r = subprocess.run([*map(str, (a._bin / 'agentd', '--check', '--run', a.run, '--manifests', a.manifests, '--config',
                                   a.dir / 'agentd.yaml', '--root-file', f'0={a.root_file}'))],
                       text=True, capture_output=True, timeout=60, check=False)
    assert re.search(r'^ok +seccomp ', r.stdout, re.M) and re.search(r'^(ok|note) +Landlock ', r.stdout, re.M)
    assert re.search(r'cage: seccomp, (no )?landlock', r.stdout) and r.returncode == 0, r.stdout


def test_check_shows_the_kubelet(node):
    """What a DaemonSet may lack: the kubelet's directory, and mounts that the kubelet sees."""
    node.agentd.start()
    node.agentd.stop()
    a, kubelet, tree = node.agentd, node.dir / 'kubelet', node.cgroup('tree').path
    check = [a._bin / 'agentd', '--check', '--run', a.run, '--kubelet-root', kubelet, '--cgroup-root', tree, '--config',
             a.dir / 'agentd.yaml', '--root-file', f'0={a.root_file}']

    def rows(prepare):
        r = subprocess.run(['unshare', '--mount', '--propagation', 'private', 'sh', '-ec', f'{prepare}; exec "$0" "$@"', *check],
                           text=True, capture_output=True, timeout=60, check=False)
        return r.returncode, {' '.join(n.split()): (o, t) for o, n, t in re.findall(
            r'^(ok|note|PROBLEM) +(.{22}) (.*)$', r.stdout, re.M)}

    code, rows_without = rows('true')
    assert rows_without["the kubelet's cgroup"][0] == 'note'
    assert code == 1 and rows_without['kubelet'][0] == 'PROBLEM' and rows_without["kubelet's registry"][0] == 'note'
    assert rows_without['manifests'] == ('ok', 'none: pods come from the kubelet (--manifests)')
    (kubelet / 'pods').mkdir(parents=True)
    (kubelet / 'plugins_registry').mkdir()
    code, private = rows('true')
    assert code == 1 and private['mount propagation'][0] == 'PROBLEM' and 'Bidirectional' in private['mount propagation'][1]
    assert private["pods' directories"][0] == 'PROBLEM' and 'the next container' in private["pods' directories"][1]
    assert private['kubelet'][0] == private["kubelet's registry"][0] == 'ok'
    share = '; '.join(f'mount --bind {d} {d}; mount --make-shared {d}' for d in (kubelet / 'pods', a.run))
    code, shared = rows(share)
    assert code == 0 and shared['mount propagation'][0] == shared["pods' directories"][0] == 'ok'
    below = tree / 'node-1' / 'kubepods'
    below.mkdir(parents=True)
    code, elsewhere = rows(share)
    assert code == 1 and elsewhere["the kubelet's cgroup"][0] == 'PROBLEM', elsewhere
    assert elsewhere["the kubelet's cgroup"][1].startswith('node-1/kubepods: agentd does not look there; name it (--kubepods, ')
    check += ['--kubepods', 'node-1/kubepods']
    code, named = rows(share)
    assert code == 0 and named["the kubelet's cgroup"] == ('ok', 'node-1/kubepods')
    assert shared['pid namespace'][0] in ('ok', 'note') and shared['cgroup namespace'][0] in ('ok', 'note')
