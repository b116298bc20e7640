"""What somebody does to our eBPF programs, links, pins and maps is undone; and all of it can be removed for good."""
import contextlib
import ctypes
import os
import re
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from . import bpfmap, sockets
from .node import BUILD, MODE
from .run import sh, wait_for
from .test_cage import metrics
from .test_redirect import APP, live, table  # noqa: F401 (a fixture)

SOAK = bool(os.environ.get('AGENTD_SOAK'))
CONNECT4, SOCK_ADDR, OBJ_GET, PROG_LOAD, LINK_UPDATE = 10, 18, 7, 5, 29


def is_still(pod):
    """The broker has heard all that happened, for it takes its events in turn, and will not look again for a second."""
    agentd = pod.node.agentd
    for _ in range(2):
        agentd.ctl('redirect', 'explain', '--pod', pod.uid, '--uid', '1000', '--gid', '1000', '192.0.2.1:80')
    text = ''.join(f.read_text() for f in Path(f'/proc/{agentd.process.pid}/fdinfo').iterdir())
    timers = re.findall(r'^it_value: \((\d+), (\d+)\)', text, re.M)  # until they are due; zero: they are not set
    return timers and all(int(s) or not int(ns) for s, ns in timers)


@pytest.fixture
def pins(table):  # noqa: F811
    """The directory of pins, of a pod that is live."""
    pod, peer = table
    live(pod)
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006
    # For addresses that come it looks once more, 100 ms later, and mends things unsaid.
    wait_for('agentd to have looked', lambda: is_still(pod))
    return next((pod.node.dir / 'bpf' / 'agentd').iterdir())


def repaired(pod):
    return next((int(line.split()[-1]) for line in metrics(pod.node).splitlines()
                 if line.startswith('agentd_redirect_repaired_total')), 0)


def redirects(pod, peer):
    """Both ways."""
    seen = pod.call(sockets.dial, peer.ip, 80, APP, APP), peer.call(sockets.dial, pod.ip, 8080)
    return [isinstance(s, dict) and s['port'] for s in seen] == [15001, 15006]


def nudge(pins):
    """Something happens to the pins; else it would be a minute until anybody looks."""
    if not SOAK:
        (pins / 'nudge').mkdir()
        (pins / 'nudge').rmdir()


def settles(pod, peer, n=1):
    """All is redirected again, `n` things were put back, and nothing more."""
    wait_for('it to be put back', lambda: repaired(pod) >= n, 70 if SOAK else 20)
    assert redirects(pod, peer)
    nudge(next((pod.node.dir / 'bpf' / 'agentd').iterdir()))
    assert repaired(pod) == n
    assert pod.node.agentd.log.read_text().count('somebody took away or changed') >= 1


def test_pins_are_removed(pins, table):  # noqa: F811
    pod, peer = table
    for n, what in enumerate(('link_redirect_connect4', f'pods/{pod.uid}/redirect_lookup',
                              f'pods/{pod.uid}/redirect_getsockopt', 'map_ports'), 1):
        (pins / what).unlink()
        settles(pod, peer, n)
        assert (pins / what).exists()


def test_all_pins_are_removed(pins, table):  # noqa: F811
    pod, peer = table
    some = pins / 'pods' / pod.uid / 'redirect_lookup', pins / 'map_pods'
    agentd = pod.node.agentd.process
    agentd.send(signal.SIGSTOP)  # or it puts back the first while the others go
    try:
        for path in sorted(pins.rglob('*'), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    finally:
        agentd.send(signal.SIGCONT)
    # A link outlives its pin by a moment: that it still redirects is no sign.
    wait_for('all to be put back', lambda: all(p.exists() for p in some) and redirects(pod, peer))


def test_links_are_detached(pins, table):  # noqa: F811
    pod, peer = table
    for n, what in enumerate(('link_redirect_connect4', f'pods/{pod.uid}/redirect_lookup'), 1):
        wait_for('the last nudge to be over', lambda: is_still(pod))
        sh('bpftool', 'link', 'detach', 'pinned', pins / what)
        if what.startswith('link'):
            assert not redirects(pod, peer)
        else:  # the gate
            assert peer.call(sockets.dropped, pod.ip, 8080, 0.5)
        nudge(pins)
        settles(pod, peer, n)


def let_all_pass():
    """A program of somebody else's, for connect4."""
    code = struct.pack('=BBhiBBhi', 0xb7, 0, 0, 1, 0x95, 0, 0, 0)
    instructions, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b'GPL')
    attributes = struct.pack('=IIQQ', SOCK_ADDR, 2, ctypes.addressof(instructions), ctypes.addressof(licence))
    return bpfmap._bpf(PROG_LOAD, attributes.ljust(68, b'\0') + struct.pack('=I', CONNECT4))


def test_a_program_is_replaced(pins, table):  # noqa: F811
    pod, peer = table
    name = ctypes.create_string_buffer(os.fsencode(pins / 'link_redirect_connect4'))
    link, program = bpfmap._bpf(OBJ_GET, struct.pack('=QII', ctypes.addressof(name), 0, 0)), let_all_pass()
    bpfmap._bpf(LINK_UPDATE, struct.pack('=IIII', link, program, 0, 0))
    os.close(link)
    os.close(program)
    assert pod.call(sockets.dial, peer.ip, 80, APP, APP)['port'] == 80
    nudge(pins)
    settles(pod, peer)


def test_a_link_whose_pin_is_removed_but_is_held(pins, table):  # noqa: F811
    """Attached twice, a dial would be redirected twice: nothing is done until it is let go."""
    pod, peer = table
    name = ctypes.create_string_buffer(os.fsencode(pins / 'link_redirect_connect4'))
    link = bpfmap._bpf(OBJ_GET, struct.pack('=QII', ctypes.addressof(name), 0, 0))
    (pins / 'link_redirect_connect4').unlink()
    for _ in range(20):
        assert redirects(pod, peer)
    os.close(link)
    settles(pod, peer)


def test_entries_are_edited(pins, table):  # noqa: F811
    """threats-and-faults.md T26: an entry changed, one taken away, one added."""
    pod, peer = table
    with bpfmap.Map(pins / 'map_pods', 8) as pods, bpfmap.Map(pins / 'map_ports', 12) as ports, \
            bpfmap.Map(pins / 'map_cidrs', 24) as cidrs:
        (cgroup, _), = list(pods.items())
        key, _ = next(i for i in ports.items() if struct.unpack('=III', i[0])[1] == 1)
        index = struct.unpack('=III', key)[0]
        port, cidr = struct.pack('=III', index, 1, 80), struct.pack('=II16s', 32, index, bytes(16))
        del pods[cgroup]
        del ports[key]
        ports[port] = b'\1'  # port 80 goes past Envoy
        cidrs[cidr] = struct.pack('=I', 1)  # and so does all the rest
        assert pod.call(sockets.dial, peer.ip, 80, APP, APP)['port'] == 80
        nudge(pins)

        def mended():
            keys = [k for m in (ports, cidrs) for k, _ in m.items()]
            return [k for k, _ in pods.items()] == [cgroup] and key in keys and not {port, cidr} & set(keys)
        wait_for('all to be put back', mended, 70 if SOAK else 20)
        # What was taken away may have been written again by a look at its addresses, which counts nothing.
        wait_for('what was added to be counted', lambda: repaired(pod) >= 2)
        assert repaired(pod) <= 4 and redirects(pod, peer)


def test_uninstall(pins, table):  # noqa: F811
    pod, peer = table
    agentd = pod.node.agentd
    command = [BUILD / MODE / 'agentd', '--redirect-uninstall', '--run', agentd.run, '--bpffs', pod.node.dir / 'bpf']
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=agentd.environment())
    assert refused.returncode == 1 and 'another agentd' in refused.stderr, refused.stderr
    agentd.stop()
    assert redirects(pod, peer)
    sh(*command, env=agentd.environment())
    assert not pins.parent.exists()
    assert pod.call(sockets.dial, peer.ip, 80, APP, APP)['port'] == 80
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 8080
    sh(*command, env=agentd.environment())
    agentd.start()
    pod.wait_served()
    live(pod)
    # The sockets of its Envoy listened before.
    wait_for('a new beginning', lambda: redirects(pod, peer))


@contextlib.contextmanager
def named(pod):
    """As `ip netns add <uid>` names it."""
    name = Path('/run/netns', pod.uid)
    name.touch()
    sh('mount', '--bind', pod.netns.path, name)
    try:
        yield
    finally:
        sh('umount', name)
        name.unlink()


def test_an_uninstall_in_between_costs_no_connection(pins, table):  # noqa: F811
    """Its Envoy listens, and has no reason to say a word: it is found in the namespace that has the pod's name."""
    pod, peer = table
    agentd = pod.node.agentd
    command = [BUILD / MODE / 'agentd', '--redirect-uninstall', '--run', agentd.run, '--bpffs', pod.node.dir / 'bpf']
    with named(pod):
        agentd.stop()
        sh(*command, env=agentd.environment())
        assert pod.call(sockets.dial, peer.ip, 80, APP, APP)['port'] == 80
        agentd.start()
        wait_for('the rules', lambda: agentd.ctl('redirect')['redirect'][0]['in_force'])
        for _ in range(20):
            assert pod.call(sockets.dial, peer.ip, 80, APP, APP)['original'] == f'{peer.ip}:80'
            assert redirects(pod, peer)
