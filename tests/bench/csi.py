"""agentd as the kubelet's CSI driver: what a publish takes, and what a published pod needs."""
import contextlib
import json
import struct
import subprocess
import time
from pathlib import Path

from google.protobuf import json_format

from tests.e2e import run as e2e
from tests.e2e.csi import CsiNode
from tests.kubelet import messages

from .tools import PUBLISH, Held, Processes, load, row

POD_COUNTS = (0, 10, 50, 250)
CALLS, PARALLEL, FIRST_PODS, SETTLE_S = 256, (1, 64), 10, 4


@contextlib.contextmanager
def node_of(made):
    """No kubelet process: its directories are made here, its calls by publish.c, which costs less than Python.

    And no pods' cgroups, nor a place where they would be: clients here are processes of the host's."""
    node = CsiNode(*made, mode='release')
    at = node.agentd.flags.index('--kubepods')
    del node.agentd.flags[at:at + 2]
    node.agentd.settings.update(log_level='info', csr_per_second=100, pod_connections=1024)
    node.agentd.plane.update(opens_per_second=1000, opens_burst=1000)
    node.agentd.start()
    try:
        yield node
    finally:
        node.remove()


class Pods:
    def __init__(self, node):
        self._node, self._count = node, 0

    def make(self, count, sa=None):
        """Their kubelet's directories are there; with an account of their own, if none is named."""
        made = []
        for _ in range(count):
            self._count += 1
            pod = self._node.csi_pod(f'pod-{self._count}', sa=sa, created=False)
            pod.target.parent.mkdir(parents=True)
            made.append(pod)
        return made


def _messages(method, pods):
    """As publish.c wants them."""
    request, _ = messages.METHODS[messages.path_of(method)]
    for pod in pods:
        _, fields = pod.publish()
        if method == 'NodeUnpublishVolume':
            fields = {k: fields[k] for k in ('volume_id', 'target_path')}
        data = json_format.ParseDict(fields, request()).SerializeToString()
        yield struct.pack('>I', len(data)) + data


def _argv(node, method, parallel):
    return node.inside(PUBLISH, node.agentd.run / 'csi.sock', messages.path_of(method), parallel)


def calls(node, method, pods, parallel):
    r = subprocess.run(_argv(node, method, parallel), input=b''.join(_messages(method, pods)), stdout=subprocess.PIPE,
                       check=True, timeout=300)
    found = json.loads(r.stdout)
    if found['failed']:
        raise RuntimeError(f'{method}: {found["failed"]} calls failed: {node.agentd.process.tail(5)}')
    return found


def _latency(node, pods):
    found = {}
    for parallel in PARALLEL:
        calls(node, 'NodePublishVolume', pods.make(1, 'shared'), 1)  # its certificate is there from now on
        known = pods.make(CALLS, 'shared')
        found['of a new pod, its account known', parallel] = calls(node, 'NodePublishVolume', known, parallel)
        found['of a new pod and account', parallel] = calls(node, 'NodePublishVolume', new := pods.make(CALLS), parallel)
        found['again, with a new token', parallel] = calls(node, 'NodePublishVolume', known, parallel)
        found['unpublish', parallel] = calls(node, 'NodeUnpublishVolume', known + new, parallel)
    row(f'publish, ms ({CALLS} pods)', *(f'{p} at a time' for p in PARALLEL))
    for name in dict.fromkeys(n for n, _ in found):
        row(f'  {name}: p50, p99', *(f'{found[name, p]["p50"] / 1e3:.1f}, {found[name, p]["p99"] / 1e3:.1f}' for p in PARALLEL))
        row('    calls/s', *(f'{found[name, p]["n"] / found[name, p]["seconds"]:,.0f}' for p in PARALLEL))


def _first(node, pods, sa=None):
    """Milliseconds from the call to the first secret, of a client that tries from the start on; and to its answer."""
    pod, = pods.make(1, sa)
    process = subprocess.Popen(_argv(node, 'NodePublishVolume', 1), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b''.join(_messages('NodePublishVolume', [pod])))
    process.stdin.close()
    netns = f'/run/netns/{node.network.netns.name}'
    answered = load('first', pod.mount / 'socket', 1, netns=netns)['first_at']
    found = json.loads(process.stdout.read())
    process.wait()
    calls(node, 'NodeUnpublishVolume', [pod], 1)  # the next pod has the same namespace
    return (answered - found['began']) * 1e3, found['p50'] / 1e3


def _secrets(node, pods):
    known = [_first(node, pods, 'shared') for _ in range(FIRST_PODS)]
    new = [_first(node, pods) for _ in range(FIRST_PODS)]

    def median(values):
        return f'{sorted(values)[len(values) // 2]:.1f}'
    row(f'publish to first secret, ms (median of {FIRST_PODS})', 'known account', 'new account')
    row('  first secret served', *(median([s for s, _ in f]) for f in (known, new)))
    row('  publish answered', *(median([a for _, a in f]) for f in (known, new)))


def publish(made):
    with node_of(made) as node:
        pods = Pods(node)
        _latency(node, pods)
        _secrets(node, pods)


def _memory(node):
    time.sleep(SETTLE_S)
    return Processes([node.agentd.process.pid, node.agentd.worker_pid()]).memory_kib()


def memory(made):
    """Each with an account of its own; first only published, then with the streams of an Envoy."""
    with node_of(made) as node, contextlib.ExitStack() as stack:
        pods, have = Pods(node), []
        published, connected = [], []
        for count in POD_COUNTS:
            have += (new := pods.make(count - len(have)))
            if new:
                calls(node, 'NodePublishVolume', new, 16)
            published.append(_memory(node))
        held = Held()
        stack.callback(held.stop)
        at = 0
        connected.append(published[-1])
        for count in POD_COUNTS[1:]:
            pairs = [(Path(p.mount) / 'socket', Path(p.mount) / 'XDS') for p in have[at:count]]
            e2e.wait_for('the sockets', lambda ps=pairs: all(s.exists() for p in ps for s in p))
            held.add(pairs)
            at = count
            connected.append(_memory(node))
        row('published pods, an account each', *POD_COUNTS)
        row('  PSS of agentd and its worker, KiB', *(f'{p:,}' for p in published))
        row('  KiB for each since the first column', '', *(
            f'{(p - published[0]) / c:.0f}' for p, c in zip(published[1:], POD_COUNTS[1:])))
        row(f'  PSS, so many of the {POD_COUNTS[-1]} with 1 ADS and 2 SDS streams', *(f'{p:,}' for p in connected))


def csi(made):
    publish(made)
    memory(made)
