"""Prints what things cost.  Nothing passes or fails here; a thing that cannot be measured says why.

    tests/bench/run [WHAT...]                 agentd; WHAT: costs memory secrets attest relay push attacked restart csi (default: these),
                                              thousand machines owners envoys
    tests/bench/run --socket PATH [--netns PATH] [--pid PID...] [--ads PATH --direct tls:HOST:PORT]

The second form measures the agent behind PATH, whatever it is.  Its processes are PID..., or the one that
listens; --netns is a pod's.  For --ads its control plane must be plane.c: build/release/tests/bench/plane
CERTIFICATE KEY, whose address --direct is.
"""
import argparse
import os
import platform
import re
import socket
import struct
import subprocess
import time
from pathlib import Path

from . import agent, costs, csi, machines, owners, thousand, traffic
from .tools import TOP, Processes, build, row


ALL = ('costs', 'memory', 'secrets', 'attest', 'relay', 'push', 'attacked', 'restart', 'csi')
ASKED = {'csi': csi.csi, 'thousand': thousand.thousand, 'machines': machines.machines, 'owners': owners.owners}  # the rest is agent.py's
MORE = 'thousand', 'machines', 'owners', 'envoys'


def attempt(name, measure, *args):
    try:
        measure(*args)
    except (RuntimeError, OSError, ValueError, LookupError, AttributeError, subprocess.SubprocessError) as e:
        row(f'{name}: not measured: {e}')


def of_agentd(what):
    if 'costs' in what:
        for measure in (costs.discovery, costs.secret, costs.keys, costs.attest, costs.broker):
            attempt(measure.__name__, measure)
    live = [w for w in (*ALL[1:], *MORE) if w in what]
    if live and os.geteuid() != 0:
        row(f'{", ".join(live)}: not measured: needs root')
    elif live:
        with agent.e2e.run() as made:
            for w in live:
                attempt(w, ASKED.get(w) or getattr(agent, w), made)


def listener_of(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        return struct.unpack('3i', s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def of_socket(a):
    processes = Processes(a.pid or [listener_of(a.socket)])
    attempt('connections', traffic.connections, a.socket, a.netns)
    attempt('fetches', traffic.fetches, a.socket, processes, a.netns)
    if a.ads and a.direct:
        attempt('relay', traffic.relay, {'the agent': (a.ads, processes, a.netns)}, a.direct)
    row('PSS, KiB', f'{processes.memory_kib():,}')


def machine(load_before, start):
    model = re.search(r'^model name\s*: (.*)$', Path('/proc/cpuinfo').read_text(), re.M)
    total = re.search(r'^MemTotal:\s+(\d+)', Path('/proc/meminfo').read_text(), re.M)
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=TOP, text=True, capture_output=True, check=False)
    print(f'machine: {model.group(1) if model else platform.machine()}, {os.cpu_count()} cores, '
          f'{int(total.group(1)) >> 20} GiB, Linux {platform.release()}')
    print(f'load before: {load_before:.1f}; took {time.monotonic() - start:.0f} s; '
          f'{time.strftime("%Y-%m-%d %H:%M", time.gmtime())} UTC; commit {commit.stdout.strip() or "unknown"}')


def main():
    p = argparse.ArgumentParser(prog='tests/bench/run', description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('what', nargs='*', metavar='WHAT', choices=[*ALL, *MORE, []])
    p.add_argument('--socket')
    p.add_argument('--netns')
    p.add_argument('--pid', type=int, nargs='+')
    p.add_argument('--ads')
    p.add_argument('--direct')
    a = p.parse_args()
    load_before, start = os.getloadavg()[0], time.monotonic()
    build()
    if a.socket:
        of_socket(a)
    else:
        of_agentd(a.what or ALL)
    machine(load_before, start)


if __name__ == '__main__':
    main()
