"""The memory that the chart recommends is enough for a bad day of a full node: no worker is killed for it.  A push to all
is test_push_memory's.  Full counts when AGENTD_SOAK=1."""
import os
import signal

import pytest

from . import mesh
from .conftest import measured
from .crowd import CLUSTER, LISTENER, Crowd
from .run import wait_for
from .test_limits import SOAK, memory_limit, memory_mib
from .test_push_memory import LIMIT_MIB, forget_peak
from .test_upgrade import beside

PODS, LIFE_S = (250, 60) if SOAK else (12, 6)


@pytest.fixture
def full(make_node):
    """Each pod has an account, whose certificate is renewed in half of its life."""
    node = make_node(mode='release')
    node.agentd.settings.update(log_level='info', secret_ttl_max_s=LIFE_S, csr_per_second=100)
    node.agentd.plane.update(opens_per_second=200, opens_burst=200)
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    crowd = Crowd(node, PODS, PODS)
    node.agentd.start()
    crowd.start().wait_served()
    yield node, crowd
    crowd.stop()


def answers(crowd, *kinds):
    return {name: sum(c['ads'].get(k, 0) for k in kinds) for name, c in crowd.counts().items()}


def wait_more(crowd, what, before, *kinds):
    wait_for(what, lambda: all(n > before[name] for name, n in answers(crowd, *kinds).items()))


def peaks(what, node):
    measured.append(f'{what}, {PODS} pods: at most {memory_mib(node.agentd.worker_pid(), "VmHWM")} MiB')


def test_no_worker_is_killed_for_memory(full):
    node, crowd = full
    worker = node.agentd.worker_pid()
    with memory_limit(node, LIMIT_MIB):
        before = answers(crowd, CLUSTER)
        node.istiod.order('listen', on='nothing')
        node.istiod.order('listen', on='grpc')
        wait_more(crowd, 'everybody to hear of istiod again', before, CLUSTER)
        peaks("istiod's return", node)

        forget_peak(worker)
        issued = len(node.istiod.issued())
        wait_for('as many certificates', lambda: len(node.istiod.issued()) >= issued + PODS, max(60, 2 * LIFE_S))
        peaks('all certificates renewed', node)
        assert node.agentd.worker_pid() == worker

        before = answers(crowd, CLUSTER, LISTENER)
        os.kill(worker, signal.SIGKILL)
        wait_more(crowd, 'everybody at the next worker', before, CLUSTER, LISTENER)
        next_worker = node.agentd.worker_pid()
        peaks('the next worker', node)
        assert node.agentd.log.read_text().count('the worker ended') == 1

    before, old = answers(crowd, CLUSTER, LISTENER), node.agentd
    node.agentd = beside(node, 'next')
    node.agentd.settings.update(old.settings)
    node.agentd.plane.update(old.plane)
    node.agentd.start()
    assert old.process.wait() == 0
    with memory_limit(node, LIMIT_MIB):
        wait_more(crowd, 'everybody at the next agentd', before, CLUSTER, LISTENER)
        peaks('the next agentd', node)
        assert node.agentd.worker_pid() != next_worker
        assert memory_mib(node.agentd.worker_pid(), 'VmHWM') < LIMIT_MIB
        assert 'the worker ended' not in node.agentd.log.read_text()
