"""What a run makes carries the run's name, so that the next one can sweep what a killed one left.

The name is PREFIX.PID.START (the start time makes a re-used pid harmless): a directory in /tmp, a
cgroup, and the network namespaces NAME.*.  All processes live in the cgroup.
"""
import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# Ubuntu's bpftool in the PATH is a script that looks for one of the kernel that runs.
os.environ['PATH'] = ':'.join([*(str(tool.parent) for tool in Path('/usr/lib/linux-tools').glob('*/bpftool')), os.environ['PATH']])
PREFIX = 'agentd-e2e'
# Pytest's limit ends a test that waits for ever; this one only names what did not come.
PATIENCE_S = float(os.environ.get('E2E_PATIENCE', '120'))


def _start_time(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]
    except OSError:
        return None


RUN = f'{PREFIX}.{os.getpid()}.{_start_time(os.getpid())}'


def cgroup_root():
    for line in Path('/proc/self/mountinfo').read_text().splitlines():
        fields, _, rest = line.partition(' - ')
        if rest.split()[0] == 'cgroup2':
            return Path(fields.split()[4])
    raise RuntimeError('no cgroup2 mount in /proc/self/mountinfo')


def sh(*argv, timeout=PATIENCE_S, **kw):
    """Run a command to its end; what it said is in the error if it failed."""
    r = subprocess.run([str(a) for a in argv], text=True, capture_output=True, timeout=timeout, check=False, **kw)
    if r.returncode:
        raise RuntimeError(f'{" ".join(map(str, argv))}: exit status {r.returncode}: {r.stdout}{r.stderr}')
    return r.stdout


def wait_for(what, condition, patience_s=None, pause_s=0.05):
    """The first true result of `condition`; TimeoutError names what did not come."""
    end, error = time.monotonic() + (patience_s or PATIENCE_S), None
    while True:
        try:
            if result := condition():
                return result
        except (OSError, ValueError, LookupError, StopIteration) as e:
            error = e
        if time.monotonic() > end:
            raise TimeoutError(f'waited in vain for {what}' + (f' (last error: {error})' if error else ''))
        time.sleep(pause_s)


class Cgroup:
    def __init__(self, name):
        self.path = cgroup_root() / name
        self.path.mkdir()

    def pids(self):
        return [int(p) for p in (self.path / 'cgroup.procs').read_text().split()]

    def below_root(self):
        return str(self.path.relative_to(cgroup_root()))

    def remove(self):
        remove_cgroup(self.path)


def kill_all(path):
    """Whoever is inside, and below; on kernels without cgroup.kill one by one.  The folders, deepest first."""
    folders = sorted([path, *(p for p in path.rglob('*') if p.is_dir())], reverse=True)
    if (path / 'cgroup.kill').exists():
        (path / 'cgroup.kill').write_text('1')
    for folder in folders:
        for pid in (folder / 'cgroup.procs').read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    wait_for(f'{path} to be empty', lambda: 'populated 0' in (path / 'cgroup.events').read_text())
    return folders


def remove_cgroup(path):
    """Kills what is inside and removes the tree."""
    if not path.exists():
        return
    for folder in kill_all(path):
        wait_for(f'{folder} to go', lambda f=folder: f.rmdir() is None)


class Process:
    """A process in a cgroup, its output in a file."""

    def __init__(self, argv, log, cgroup, **kw):
        self.log = Path(log)
        with open(self.log, 'ab') as out:
            self._popen = subprocess.Popen(
                ['/bin/sh', '-c', 'echo 0 >"$0" && exec "$@"', cgroup.path / 'cgroup.procs', *map(str, argv)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd=TOP, **kw)
        self.pid = self._popen.pid

    def running(self):
        return self._popen.poll() is None

    def send(self, number):
        self._popen.send_signal(number)

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self, patience_s=PATIENCE_S):
        """SIGTERM, then patience; the exit status (negative: of a signal)."""
        return self._end(signal.SIGTERM, patience_s)

    def wait(self, patience_s=PATIENCE_S):
        return self._popen.wait(patience_s)

    def _end(self, number, patience_s=PATIENCE_S):
        if self.running():
            self._popen.send_signal(number)
        try:
            return self._popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
            raise

    def tail(self, lines=15):
        return '\n'.join(self.log.read_text(errors='replace').splitlines()[-lines:])


def _remove_run(name):
    """Everything that carries the name, in the order in which it lets go."""
    remove_cgroup(cgroup_root() / name)
    for ns in Path('/run/netns').glob(f'{name}.*'):
        sh('ip', 'netns', 'del', ns.name)
    root = Path(tempfile.gettempdir()) / name
    mounts = [line.split()[4] for line in Path('/proc/self/mountinfo').read_text().splitlines()]
    for mount in sorted((m for m in mounts if f'{m}/'.startswith(f'{root}/')), reverse=True):
        sh('umount', '-l', mount)
    shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def alone(path):
    """One process of the machine at a time; what the path leads to is the lock."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def sweep():
    """Remove what runs left whose process is no more."""
    with alone(cgroup_root()):
        places = [cgroup_root().glob(f'{PREFIX}.*'), Path('/run/netns').glob(f'{PREFIX}.*'),
                  Path(tempfile.gettempdir()).glob(f'{PREFIX}.*')]
        found = {re.match(rf'{re.escape(PREFIX)}[.](\d+)[.](\d+)(?=[.]|$)', p.name) for place in places for p in place}
        for name in {m[0] for m in found if m and _start_time(m[1]) != m[2]}:
            print(f'removing what {name} left', file=sys.stderr)
            _remove_run(name)


@contextlib.contextmanager
def run():
    """The directory and the cgroup of this run, gone at its end."""
    sweep()
    root = Path(tempfile.gettempdir()) / RUN
    try:
        root.mkdir()
        # Private, so that what containers mount below stays theirs; `unshare` could not see to that in a
        # chroot, whose root is no mount point.
        sh('mount', '-t', 'tmpfs', '-o', 'mode=755', RUN, root)
        sh('mount', '--make-private', root)
        yield root, Cgroup(RUN)
    finally:
        _remove_run(RUN)
