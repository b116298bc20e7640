"""A worker that works is not killed, however little CPU agentd may use: AGENTD_SOAK=1 only, for silence needs its time."""
import contextlib
import os
from pathlib import Path

import pytest

from . import clients
from .conftest import measured
from .gang import Gang
from .run import wait_for

PODS, ROUNDS, ROUND_S = 50, int(os.environ.get('AGENTD_ROUNDS', 50)), 8
SHARE, PERIOD_US = 0.2, 100_000
WATCHDOG_S = 10  # half of it is how long a worker may be silent


@contextlib.contextmanager
def cpu_limit(node, share):
    """Of agentd, with either version of cgroups."""
    v1, quota = Path('/sys/fs/cgroup/cpu'), int(share * PERIOD_US)
    if (node.agentd.cgroup.path / 'cpu.max').exists():
        (node.agentd.cgroup.path / 'cpu.max').write_text(f'{quota} {PERIOD_US}')
        yield
        return
    if not os.access(v1 / 'cgroup.procs', os.W_OK):
        pytest.skip('no cgroup of this machine bounds CPU')
    made = v1 / f'{node.name}.cpu'
    made.mkdir()
    (made / 'cpu.cfs_quota_us').write_text(str(quota))
    for pid in node.agentd.cgroup.pids():
        with contextlib.suppress(ProcessLookupError):
            (made / 'cgroup.procs').write_text(str(pid))
    try:
        yield
    finally:
        (made / 'cpu.cfs_quota_us').write_text('-1')
        for pid in (made / 'cgroup.procs').read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (v1 / 'cgroup.procs').write_text(pid)
        wait_for('the cgroup to be empty', lambda: made.rmdir() is None)


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not os.environ.get('AGENTD_SOAK'), reason='50 rounds: AGENTD_SOAK=1')
def test_a_worker_that_works_is_not_killed(make_node):
    node = make_node(mode='release')
    node.agentd.settings['log_level'] = 'info'
    around = node.agentd.environment
    node.agentd.environment = lambda: {**around(), 'WATCHDOG_USEC': str(WATCHDOG_S * 1_000_000)}
    gang, good = Gang(node, PODS), node.pod('good')
    node.agentd.start()
    good.wait_served()
    wait_for('the pods to be served', gang.are_there)
    worker, served = node.agentd.worker_pid(), 0
    with cpu_limit(node, SHARE):
        for n in range(ROUNDS):
            going = gang.start('many_messages', ROUND_S)
            while going.running():
                with contextlib.suppress(Exception):  # slow is no fault here
                    served += 'default' in good.call(clients.fetch_secrets, good.mount / 'socket', ['default'])
            going.wait()
            assert node.agentd.worker_pid() == worker, f'round {n}: {node.agentd.log.read_text()[-2000:]}'
    text = node.agentd.log.read_text()
    measured.append(f'{PODS} pods with half messages, {SHARE} of a CPU: {ROUNDS} rounds of {ROUND_S} s, '
                    f'{text.count("does not answer")} kills, {served} answers to another pod')
    assert 'is killed' not in text
