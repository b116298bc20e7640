"""Who holds the worker's heap: every block that is alive, by the functions that asked for it (owners.c).

    python3 -m tests.bench.owners [PODS]     also prints the stacks that hold most
"""
import bisect
import collections
import contextlib
import re
import struct
import sys
import time
from pathlib import Path

from . import agent
from .tools import BIN, TOP, Held, Processes, row, run

STACKS_SHOWN = 150
BASE, MORE = 10, 60  # what the process has once is there with the first ten
WORKER = BIN / 'owners/agentd-worker'
DEPTH, STACKS = 30, 1 << 16  # of owners.c
ENTRY = struct.Struct(f'<qq{DEPTH}Q')


class Symbols:
    def __init__(self):
        found = sorted((int(at, 16), name) for at, kind, name in
                       (line.split() for line in run('nm', '--defined-only', WORKER).stdout.splitlines()) if kind in 'tTwWbBdD')
        self._at, self._names = [a for a, _ in found], [n for _, n in found]
        self.address = {n: a for a, n in found}

    def name(self, at):
        return self._names[i - 1] if (i := bisect.bisect_right(self._at, at)) else '?'


def _base(pid):
    """Where the worker's own file lies; it is one that may be anywhere."""
    lines = Path(f'/proc/{pid}/maps').read_text().splitlines()
    return min(int(line.split('-')[0], 16) for line in lines if line.endswith('/agentd-worker'))


def read(pid, symbols):
    """Stack of functions, innermost first -> (blocks, bytes) that are alive."""
    base, found = _base(pid), collections.Counter()
    blocks = collections.Counter()
    with open(f'/proc/{pid}/mem', 'rb') as f:
        f.seek(base + symbols.address['owners_stacks'])
        for n, size, *frames in ENTRY.iter_unpack(f.read(STACKS * ENTRY.size)):
            if frames[0] and n:
                stack = tuple(symbols.name(at - base) for at in frames if at)
                found[stack] += size
                blocks[stack] += n
    return found, blocks


ALLOCATORS = re.compile(r'note$|gpr_|_Zn[wa]|mem_|json|hashtable_|strbuffer_|parse_|utf8|lex_|dump_|jsonp_|_end$|evbuffer_|event_mm|evmap_|St\d')
# Where none of grpc's own frames comes first.  The first that fits.
OURS = {
    'environment, node, bootstrap': r'env_|node_|render|proxy_config|\w+_asked_read|take_over|targets_|runtime_|override_',
    'the pod and its services': r'pod_|limits_|dns_|link_',
    'certificate of the account': r'entry_of|cert_|roots_|x509_|pack|identity_',
    'sockets, connections, streams': r'uds_|attest_|accept_|rpc_|loop_|recvmsg|ask$',
    'XDS and SDS': r'xds_|ads_|sds_|pool_|istiod_|on_name|sample_of|start$',
}


def owner(stack):
    text = ' '.join(stack)
    if 'Arena15CreateWithAlloc' in text:
        return "grpc: arena of the outgoing call" if 'grpc_channel_create_call' in stack else "grpc: arenas of the incoming calls"
    if 'MakeSlice' in text:
        return 'grpc: what connections read into'
    first = next((f for f in stack if not ALLOCATORS.match(f)), '?')
    if first.startswith(('_Z', 'grpc_')):
        return 'grpc: transports, servers, the rest'
    return next((name for name, what in OURS.items() if re.match(what, first)), 'the rest')


def measure(made, more=MORE):
    """({stack: (KiB, blocks)}, KiB that are locked), for each pod that came after the first ones."""
    run('make', '-s', WORKER.relative_to(TOP))
    symbols = Symbols()
    with agent.node_of(made, 'release/tests/bench/owners') as node, contextlib.ExitStack() as stack:
        node.agentd.start()
        held = Held()
        stack.callback(held.stop)
        seen = []
        for before, count in (0, BASE), (BASE, more):
            held.add(agent.crowd_of(node, count, before))
            time.sleep(agent.SETTLE_S)
            worker = node.agentd.worker_pid()
            seen.append((*read(worker, symbols), Processes([worker]).locked_kib()))
    (before, nbefore, locked), (after, nafter, all_locked) = seen
    return {s: ((after[s] - before[s]) / 1024 / more, (nafter[s] - nbefore[s]) / more) for s in after}, (all_locked - locked) / more


def owners(made, more=MORE):
    found, locked = measure(made, more)
    kib, blocks = collections.Counter(), collections.Counter()
    for stack, (size, n) in found.items():
        kib[owner(stack)] += size
        blocks[owner(stack)] += n
    row(f'the heap of the worker, for each of {more} pods', 'KiB', 'blocks')
    for name, size in sorted(kib.items(), key=lambda i: (i[0] == 'the rest', -i[1])):
        row(f'  {name}', f'{size:.1f}', f'{blocks[name]:.0f}')
    row('  in all', f'{sum(kib.values()):.1f}', f'{sum(blocks.values()):.0f}')
    row('keys and tokens beside it, in locked pages', f'{locked:.1f}')
    return found


def main():
    with agent.e2e.run() as made:
        found = owners(made, *map(int, sys.argv[1:]))
    for stack, (kib, n) in sorted(found.items(), key=lambda i: -i[1][0])[:STACKS_SHOWN]:
        print(f'{kib:8.2f} KiB {n:7.2f} blocks  {" ".join(stack)}')


if __name__ == '__main__':
    main()
