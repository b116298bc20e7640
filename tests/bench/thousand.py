"""A node with up to a thousand pods: where what a pod costs begins to depend on how many there are.

The pods are stand-ins (`load hold`) with an Envoy's streams, ten to an account.  CPU is that of broker and worker together.
"""
import contextlib
import os
import signal
import statistics
import time
from pathlib import Path

from tests.e2e import run as e2e
from tests.e2e.crowd import Crowd

from . import agent, csi
from .tools import Held, Processes, row

COUNTS, TO_AN_ACCOUNT, MORE = (250, 500, 1000), 10, 5
LOOK_S = 3  # an audit comes a second after a notice
PUBLISHED, ROUNDS = 20, 10


def _started(node, pods):
    began = time.monotonic()
    node.agentd.start()
    e2e.wait_for('all manifests', lambda: 'scope=agent msg=ready' in node.agentd.log.read_text(), patience_s=120)
    took = time.monotonic() - began
    pairs = [(Path(p['mount']) / 'socket', Path(p['mount']) / 'XDS') for p in pods]
    e2e.wait_for('the sockets', lambda: all(s.exists() for p in pairs for s in p), patience_s=120)
    return took, pairs


def _timed(processes, what):
    cpu, began = processes.cpu_s(), time.monotonic()
    found = what()
    return found, (time.monotonic() - began) * 1e3, (processes.cpu_s() - cpu) * 1e3


def _one_more(node, processes):
    """CPU of a manifest, from its appearance to the pod's first secret."""
    cpu = processes.cpu_s()
    for i in range(MORE):
        agent._first(node, f'more-{i}', 'sa-0')
    return (processes.cpu_s() - cpu) / MORE * 1e3


def _looked(node):
    """CPU ms of the broker for a look at all that it keeps: something went that was among it."""
    broker, took = Processes([node.agentd.process.pid]), []
    strange = node.agentd.run / 'pods/strange'
    strange.touch()
    for goes in False, True:
        cpu = broker.cpu_s()
        if goes:
            strange.unlink()
        time.sleep(LOOK_S)
        took.append((broker.cpu_s() - cpu) * 1e3)
    return took[1] - took[0]


def _upgraded(node, held):
    """Seconds until the last stream is back, after agentd became the agentd of its file in place."""
    began = time.monotonic()
    node.agentd.process.send(signal.SIGUSR2)
    held.wait()
    return time.monotonic() - began


def _published(made, count):
    """p50 and the highest p99, ms, of publish calls beside so many published pods, one at a time; each pod goes again."""
    with csi.node_of(made) as node:
        pods, found = csi.Pods(node), []
        for n in range(count // TO_AN_ACCOUNT):
            csi.calls(node, 'NodePublishVolume', pods.make(TO_AN_ACCOUNT, f'sa-{n}'), TO_AN_ACCOUNT)
        for _ in range(ROUNDS):
            some = pods.make(PUBLISHED, 'sa-0')
            found.append(csi.calls(node, 'NodePublishVolume', some, 1))
            csi.calls(node, 'NodeUnpublishVolume', some, 1)
        return statistics.median(f['p50'] for f in found) / 1e3, max(f['p99'] for f in found) / 1e3


def _killed(node, held, probe):
    worker, began = node.agentd.worker_pid(), time.monotonic()
    os.kill(worker, signal.SIGKILL)
    first = agent._first_bytes(probe) - began
    held.wait(again=True)
    return first, time.monotonic() - began, Processes([node.agentd.worker_pid()]).cpu_s()


def _column(made, count):
    with agent.node_of(made) as node, contextlib.ExitStack() as stack:
        pods = Crowd(node, count, count // TO_AN_ACCOUNT).pods
        took, pairs = _started(node, pods)
        processes = agent.both(node)
        start_cpu = processes.cpu_s()
        held = Held('back')
        stack.callback(held.stop)
        _, connected, connect_cpu = _timed(processes, lambda: held.add(pairs))
        time.sleep(agent.SETTLE_S)
        if ended := [line for line in node.agentd.log.read_text().splitlines() if 'the worker ended' in line]:
            raise RuntimeError(ended[0])
        pss = processes.memory_kib()
        page, _, page_cpu = _timed(processes, lambda: node.agentd.page('metrics'))
        listed, list_ms, list_cpu = _timed(processes, lambda: node.agentd.ctl_text('pods')[1])
        if listed.count('crowd-') != count:
            raise RuntimeError(f'agentctl pods: {listed.count("crowd-")} of {count} pods')
        more, looked = _one_more(node, processes), _looked(node)
        first, last, next_cpu = _killed(node, held, node.pods[0])
        upgraded = _upgraded(node, held)
        return (f'{took:.1f}', f'{start_cpu / count * 1e3:.2f}', f'{connected / 1e3:.1f}', f'{connect_cpu / count:.2f}', f'{pss:,}',
                f'{pss / count:.0f}', f'{len(page) >> 10:,}', f'{page_cpu / count * 1e3:.0f}', f'{list_ms:.0f}',
                f'{list_cpu / count * 1e3:.0f}', f'{more:.2f}', f'{looked:.1f}', f'{first:.2f}', f'{last:.1f}', f'{next_cpu / count * 1e3:.2f}', f'{upgraded:.1f}')


def thousand(made):
    row('pods, with the streams of an Envoy', *COUNTS)
    columns = [(*_column(made, count), '{:.1f}, {:.1f}'.format(*_published(made, count))) for count in COUNTS]
    for what, cells in zip(
            ('start with their manifests: s until ready', '  CPU ms for each', 'all connect at once: s until served', '  CPU ms for each',
             'PSS, KiB', '  for each', '/metrics: KiB', '  CPU us for each pod', 'agentctl pods: ms', '  CPU us for each pod',
             'one pod more, to its first secret: CPU ms', 'a look at all of it (audit): CPU ms', 'worker killed: s to the first answer', '  s to the last stream',
             '  CPU ms of the next one for each', 'upgraded in place: s to the last stream', 'publish beside them: ms, p50, p99'), zip(*columns)):
        row(what, *cells)
