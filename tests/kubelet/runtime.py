"""containerd's part: sandboxes and containers, each in a cgroup of its own below the pod's.

A sandbox is a network namespace and a pause process in it.  It is remembered on disk, so that the next kubelet finds
it; and forgotten when its process is gone (a node that was booted again).
"""
import contextlib
import json
import os
import secrets
import signal
import subprocess
from pathlib import Path

_SHELL = 'echo 0 >"$0" && exec "$@"'
# The container's own copy of one volume, and nothing else of the kubelet's directory (which is $1).
_MOUNT = 'mount --bind "$0" /mnt && umount -l -R "$1" && shift && exec "$@"'


def _spawn(cgroup, log, *argv):
    with open(log, 'ab') as out:
        return subprocess.Popen(['/bin/sh', '-c', _SHELL, cgroup / 'cgroup.procs', *map(str, argv)],
                                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True).pid


def _pids(cgroup):
    with contextlib.suppress(OSError):
        return [int(p) for p in (cgroup / 'cgroup.procs').read_text().split()]
    return []


def _kill(cgroup, number):
    for pid in _pids(cgroup):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def in_container(root, volume, *argv):
    """argv in a mount namespace of its own, where the volume is at /mnt: what is mounted outside from now on is not
    seen inside, nor the other way round."""
    return ['unshare', '--mount', '--propagation', 'private', '/bin/sh', '-c', _MOUNT, volume, root, *argv]


class Runtime:
    def __init__(self, directory, config):
        self._root = config.root
        self._directory = directory / 'runtime'
        self._directory.mkdir(exist_ok=True)
        self._systemd = config.cgroup_driver == 'systemd'

    def _file(self, uid):
        return self._directory / f'{uid}.json'

    def container_name(self):
        name = secrets.token_hex(32)
        return f'cri-containerd-{name}.scope' if self._systemd else name

    def start_sandbox(self, uid, pod_cgroup):
        cgroup = pod_cgroup / self.container_name()
        cgroup.mkdir()
        pid = _spawn(cgroup, self._directory / 'log', 'unshare', '--net', 'sleep', 'infinity')
        new = self._file(uid).with_suffix('.new')
        new.write_text(json.dumps({'cgroup': str(cgroup), 'pid': pid}))
        new.rename(self._file(uid))

    def sandbox(self, uid):
        """(pid, cgroup) of the one that runs; pid 0: none."""
        try:
            d = json.loads(self._file(uid).read_text())
        except OSError:
            return 0, None
        cgroup = Path(d['cgroup'])
        return (d['pid'] if d['pid'] in _pids(cgroup) else 0), cgroup

    def has_netns(self, pid):
        """The pause process is past `unshare`."""
        with contextlib.suppress(OSError):
            return os.readlink(f'/proc/{pid}/exe').endswith('/sleep')
        return False

    def start_container(self, uid, pod_cgroup, argv, volume):
        cgroup = pod_cgroup / self.container_name()
        cgroup.mkdir()
        pid, _ = self.sandbox(uid)
        _spawn(cgroup, self._directory / 'log', 'nsenter', f'--net=/proc/{pid}/ns/net',
               *in_container(self._root, volume, *argv))

    def containers(self, uid, pod_cgroup):
        """Cgroups of containers, the sandbox's excepted; also of those that a test has started itself."""
        _, sandbox = self.sandbox(uid)
        with contextlib.suppress(OSError):
            return [p for p in pod_cgroup.iterdir() if p.is_dir() and p != sandbox]
        return []

    def running(self, uid, pod_cgroup):
        """Something that changes when a container starts or ends."""
        return {c.name for c in self.containers(uid, pod_cgroup) if _pids(c)}

    def stop_containers(self, uid, pod_cgroup, number=signal.SIGTERM):
        """True: all are gone, and so are their cgroups.  To be called again until then."""
        return all([self._end(c, number) for c in self.containers(uid, pod_cgroup)])

    def stop_sandbox(self, uid):
        _, cgroup = self.sandbox(uid)
        if cgroup and not self._end(cgroup, signal.SIGKILL):
            return False
        self._file(uid).unlink(missing_ok=True)
        return True

    def _end(self, cgroup, number):
        if not cgroup.exists():
            return True
        if _pids(cgroup):
            _kill(cgroup, number)
            return False
        try:
            cgroup.rmdir()
        except OSError:  # zombies are in it for a moment
            return False
        return True
