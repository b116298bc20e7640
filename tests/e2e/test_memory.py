"""security-rules.md G7: what hostile pods send costs the node little memory, whoever acknowledged what, and however many they are."""
import time
from collections import Counter
from pathlib import Path

import pytest

from . import clients
from .conftest import measured
from .gang import Gang
from .run import PATIENCE_S, wait_for
from .test_limits import SOAK, hits_of, memory_limit, memory_mib, pages

# The release build: a sanitizer keeps what is freed, and makes each thing larger.
MOST_MIB = 128
HEADERS = 'references', 'small_references', 'header_bomb', 'endless_continuation', 'half_open'
MESSAGES = 'huge_message', 'many_messages', 'whole_messages'  # pushes that are not read have limits of their own
STREAMS = 'reset_flood', 'stream_flood'
FOR_S = 10 if SOAK else 2


def attack(node, good, count, name):
    """Each attack has pods of its own, with full buckets; meanwhile somebody else is served."""
    pid = node.agentd.worker_pid()
    gang = Gang(node, count, name.replace('_', '-'))
    wait_for('the pods to be served', gang.are_there)
    Path(f'/proc/{pid}/clear_refs').write_text('5')  # the peak begins anew
    going = gang.start(name, FOR_S)
    served = 0
    while going.running():
        assert 'default' in good.call(clients.fetch_secrets, good.mount / 'socket', ['default'])
        served += 1
        time.sleep(0.7)  # six requests each time: within its share
    going.wait()
    peak = memory_mib(pid, 'VmHWM')
    hits = Counter()
    for p in pages(node).values():
        if p['uid'] in gang.uids:
            hits.update(hits_of(p))
    measured.append(f'{name}: {count} pods, {gang.counts()}; {served} served meanwhile; peak {peak} MiB, '
                    f'then {memory_mib(pid, "VmRSS")} MiB; {dict(hits)}')
    assert served
    gang.remove()
    return peak


def test_what_all_pods_ask_for_is_bounded(make_node):
    """Each keeps to its own limits, and all of them together would take the worker: the others have their share."""
    node = make_node(mode='release')
    node.agentd.settings.update(log_level='info', pods_requests_per_second=10)
    gang, good = Gang(node, 5), node.pod('good')
    node.agentd.start()
    good.wait_served()
    wait_for('the pods to be served', gang.are_there)
    begun = time.monotonic()
    going = gang.start('half_open', 2 * PATIENCE_S)
    wait_for('all of them to have begun', lambda: gang.began() == len(gang.pods))
    for _ in range(5):
        assert 'default' in good.call(clients.fetch_secrets, good.mount / 'socket', ['default'])
    wait_for('each of them to meet the limit of all', lambda: all(
        hits_of(p).get('node_requests') for uid, p in pages(node).items() if uid != good.uid))
    going.stop()
    found, seconds = pages(node), time.monotonic() - begun
    assert 'node_requests' not in hits_of(found.pop(good.uid))
    # A share is 40 at once and 10 a second; one more each 0.1 s finds that there is nothing left.
    assert sum(p['sockets']['accepted'] for p in found.values()) <= 10 + 10 * seconds + 5 * (40 + 20 * (seconds + 1))


def waiting(node):
    return {p['uid'] for p in pages(node).values() if p.get('sockets', {}).get('waits_until')}


def answers_of_one_worker(node, good, count):
    pid = node.agentd.worker_pid()
    return all('default' in good.call(clients.fetch_secrets, good.mount / 'socket', ['default'])
               for _ in range(count)) and node.agentd.worker_pid() == pid


def test_a_killed_worker_is_no_lever(make_node):
    """The kernel ends a worker for memory: who held it waits for the next one, and nobody else."""
    node = make_node(mode='release')
    node.agentd.settings.update(log_level='info', pods_memory_mib=4096, pods_requests_per_second=1_000_000)  # no bounds for all
    gang, good = Gang(node, 3), node.pod('good')
    node.agentd.start()
    good.wait_served()
    wait_for('the pods to be served', gang.are_there)
    first = node.agentd.worker_pid()
    with memory_limit(node, 48):
        going = gang.start('huge_message', 60)
        wait_for('the worker to be killed', lambda: not Path(f'/proc/{first}').exists())
        waits = wait_for('the next one to say who waits', lambda: waiting(node))
        assert waits <= gang.uids
        wait_for('a metric to count them', lambda: node.agentd.metric('agentd_pods_waiting') == len(waiting(node)) > 0)
        wait_for('the list to name them', lambda: 'its connections wait' in node.agentd.ctl_text('pods')[1])
        # Each death takes at least one of the three away; who cannot fill it alone is not blamed.
        wait_for('one worker to answer ten times', lambda: answers_of_one_worker(node, good, 10))
        going.stop()
    assert good.uid not in wait_for('an answer', lambda: [waiting(node)])[0]
    deaths = node.agentd.log.read_text().count('the worker was killed while this pod')
    measured.append(f'without a budget, in 48 MiB: three pods were blamed {deaths} times in all')


@pytest.mark.parametrize('count', (1, 10, 50) if SOAK else (1, 10))
def test_hostile_pods(make_node, count):
    node = make_node(mode='release')
    node.agentd.settings.update(log_level='info')
    good = node.pod('good')
    node.agentd.start()
    good.wait_served()
    pid = node.agentd.worker_pid()
    with memory_limit(node, 256):
        peaks = {name: attack(node, good, count, name) for name in (*HEADERS, *MESSAGES, *STREAMS)}
        assert node.agentd.worker_pid() == pid
    assert {n: p for n, p in peaks.items() if p > MOST_MIB} == {}
    assert hits_of(pages(node)[good.uid]) == {}
