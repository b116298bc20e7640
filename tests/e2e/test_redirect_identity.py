"""Whose dial it is: by the pod's cgroup and all below it, then by the ids of the process (ebpf-redirect.md 10.6)."""
import contextlib
import ctypes
import json
import os
import socket
from pathlib import Path

import pytest

from . import cast, scene
from .run import PATIENCE_S, Cgroup
from .scene import APP, ENVOY, OWN, PEER, PEER6

_CLONE_NEWUSER = 0x10000000
_libc = ctypes.CDLL(None, use_errno=True)
BASE = 5 * 65536  # the kubelet's user namespaces begin at multiples of 65536
CAPTURED = (APP, APP), (0, 0), (ENVOY - 1, ENVOY + 1), (BASE + APP, BASE + APP), (BASE, BASE)
EXEMPT = ((ENVOY, ENVOY), (ENVOY, 0), (0, ENVOY), (APP, ENVOY), (BASE + ENVOY, BASE + ENVOY), (BASE + APP, BASE + ENVOY),
          (BASE + ENVOY, BASE))


@pytest.fixture
def captured(capturing):
    """Makes the pod at a cgroup, some levels below the one that agentd was given."""
    def make(*above):
        node = capturing()
        node.agentd.start()
        pod = node.pod('pod', manifest=False)
        name = node.cgroup_name
        for folder in (*above, 'pod'):
            name = f'{name}/{folder}'
            pod.cgroup = Cgroup(name)
        pod.write_token()
        pod.write_manifest()
        side = scene.Captured(node, pod)
        side.configure({})
        return side
    return make


def dial_there(there, home, rows):
    with cast.moved(there, home):
        return [seen['port'] for seen in cast.dial(rows)]


def rows(users):
    return [('tcp', *user, to, 80, None) for user in users for to in (PEER, PEER6)]


@pytest.mark.parametrize('above', [(), ('burstable',), ('kubepods.slice', 'kubepods-besteffort.slice')])
def test_cgroups_and_ids(captured, above):
    side = captured(*above)
    home = side.pod.cgroup.path
    nested = home / 'app' / 'nested' / 'deep'
    nested.mkdir(parents=True)
    sibling = home.parent / 'pod2'
    sibling.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(sibling.rmdir)
        for there in home, home / 'app', nested:
            assert set(side.pod.call(dial_there, there, home, rows(CAPTURED))) == {15001}, there
            assert set(side.pod.call(dial_there, there, home, rows(EXEMPT))) == {80}, there
        for there in sibling, home.parent, side.peer.cgroup.path:
            assert set(side.pod.call(dial_there, there, home, rows(CAPTURED + EXEMPT))) == {80}, there
        # A process that comes back is captured again: nothing of it was kept.
        assert set(side.pod.call(dial_there, home, home, rows(CAPTURED))) == {15001}


# --- a real user namespace ---
def in_user_namespace(base, uid, gid, to, port):
    """The listener's port, of a dial by ids that only the namespace knows."""
    there, back = os.pipe()
    ready, go = os.pipe()
    result_reader, result = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if _libc.unshare(_CLONE_NEWUSER):
                raise OSError(ctypes.get_errno(), 'unshare')
            os.write(back, b'.')
            os.read(ready, 1)  # this namespace has ids now
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            with socket.create_connection((to, port), PATIENCE_S) as s:
                os.write(result, json.dumps(cast.finish(s)['port']).encode())
        finally:
            os._exit(0)
    os.read(there, 1)
    for name in 'uid_map', 'gid_map':
        Path(f'/proc/{pid}/{name}').write_text(f'0 {base} 65536')
    os.write(go, b'.')
    os.close(result)
    seen = os.read(result_reader, 100)
    os.waitpid(pid, 0)
    for fd in there, back, ready, go, result_reader:
        os.close(fd)
    return json.loads(seen)


def test_user_namespace(captured):
    side = captured()
    dials = [(BASE, APP, APP, PEER, 80, 15001), (BASE, ENVOY, ENVOY, PEER, 80, 80), (BASE, APP, ENVOY, PEER, 80, 80),
             (BASE, ENVOY, ENVOY, OWN, 8080, 15006), (BASE, 0, 0, PEER, 80, 15001),
             # Not the kubelet's way: its proxy is not known for one, which is the safe side (kernels.md 6).
             (100000, ENVOY, ENVOY, PEER, 80, 15001)]
    assert [side.pod.call(in_user_namespace, *d[:5]) for d in dials] == [d[5] for d in dials]
