"""A push to every pod at once takes no more memory than it may (push_memory_mib), whoever reads it and whoever does
not.  Full counts when AGENTD_SOAK=1."""
from pathlib import Path

import pytest

from . import mesh
from .conftest import measured
from .crowd import CLUSTER, Crowd
from .run import wait_for
from .test_limits import SOAK, memory_limit, memory_mib

# Pods, MB for each, push_memory_mib.
PUSHES = ((250, 3, 64), (50, 20, 64)) if SOAK else ((30, 2, 8),)
LIMIT_MIB = 256  # what the chart recommends (helm/agentd/values.yaml), less its state and attackers
# Beside the bound: the first window of each stream, its list of slices, which grpc does not shrink (docs/PERFORMANCE.md), and
# what malloc keeps between the pieces.
WINDOW_MIB, LIST_MIB, MORE_MIB = 1 / 16, 1 / 12, 32


def clusters(word, mb):
    """100 kB each; names are short, for the journal's sake."""
    return [mesh._cluster(f'{word}-{n}', '127.0.0.1', 1, alt_stat_name='-' * (10_000 * mb)) for n in range(100)]


def pushes(node):
    return node.agentd.ctl('status')['pushes']


def forget_peak(pid):
    Path(f'/proc/{pid}/clear_refs').write_text('5')
    return memory_mib(pid, 'VmRSS')


def versions(crowd):
    return {name: c['versions'].get(CLUSTER) for name, c in crowd.counts().items()}


@pytest.mark.parametrize(('count', 'mb', 'bound_mib'), PUSHES)
def test_a_push_to_all(make_node, count, mb, bound_mib):
    """Nobody reads at first; then some do slowly, and one goes again and again."""
    node = make_node(mode='release')
    node.agentd.settings.update(log_level='info', push_memory_mib=bound_mib)
    node.agentd.plane.update(unread_stream_s=2, opens_per_second=200, opens_burst=200)
    node.istiod.set('all', clusters=clusters('push', 0), listeners=[])
    crowd, calm = Crowd(node, count, 5), Crowd(node, 2, 1, 'calm')
    for pod in calm.pods:
        node.istiod.set(f'demo.{pod["name"]}', clusters=clusters('push', 0))
    node.agentd.start()
    crowd.start().wait_served()
    calm.start().wait_served()
    names = [p['name'] for p in crowd.pods]
    pid, had = node.agentd.worker_pid(), versions(crowd)
    with memory_limit(node, LIMIT_MIB):
        before = forget_peak(pid)
        crowd.stuck(*names)
        crowd.wait_for('them to stop', lambda c: c['stuck'])
        node.istiod.set('all', clusters=clusters('push', mb))
        wait_for('pushes to wait', lambda: pushes(node)['streams'])
        assert pushes(node)['held'] <= bound_mib << 20
        quiet = versions(calm)
        for pod in calm.pods:
            node.istiod.set(f'demo.{pod["name"]}', clusters=clusters('small', 0) + clusters('push', 0))
        calm.wait_for('what is small', lambda c: c['versions'][CLUSTER] not in quiet.values())
        wait_for('those who hold the memory to be ended', lambda: node.agentd.metric('agentd_xds_unread_streams_total'))
        assert pushes(node)['streams'] and versions(crowd) == had
        crowd.stuck(slow=names[:2], dying=names[2:3])
        crowd.wait_for('those who read', lambda c: c['versions'][CLUSTER] not in had.values(), names[3:])
        crowd.stuck()
        crowd.wait_for('everybody', lambda c: c['versions'][CLUSTER] not in had.values())
        peak = memory_mib(pid, 'VmHWM') - before
        measured.append(f'{count} x {mb} MB within {bound_mib} MiB: {peak} MiB more than {before} at the peak')
        assert node.agentd.worker_pid() == pid
    assert peak < bound_mib * 5 / 4 + count * (WINDOW_MIB + LIST_MIB) + MORE_MIB
    wait_for('nothing to be on its way', lambda: not pushes(node)['held'] and not pushes(node)['streams'])
