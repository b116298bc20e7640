"""What hostile pods cost the others: `python3 -m tests.bench.hostile [SECONDS]`, as root.

Each attack of 1, 10 and 50 pods, and before it a control in which the same pods burn the same CPU elsewhere.  Four others
ask for their root certificate on connections of their own, 20 times a second each: p50 and p99 of that, and the worker's peak.
"""
import statistics
import sys
import time
from pathlib import Path

from tests.e2e import attacker, netns, run
from tests.e2e.gang import Gang
from tests.e2e.node import Node

ATTACKS = 'small_references', 'half_open', 'huge_message', 'many_messages', 'reset_flood'
COUNTS, OTHERS, PAUSE_S = (1, 10, 50), 4, 0.05


def timed(path, seconds):
    """Milliseconds of each question; one that is not answered is an error."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        if attacker.reconnects(path, 1) != 1:
            raise RuntimeError('not answered')
        found.append(1000 * (time.monotonic() - start))
        time.sleep(PAUSE_S)
    return found


def _measure(gang, others, what, seconds, share=1.0):
    """(p50, p99, CPU of the gang in cores, how many questions)"""
    going = gang.start(what, seconds, share)
    found = [p.submit(timed, p.mount / 'socket', seconds - 1) for p in others]
    times = sorted(t for f in found for t in f.result(seconds + 60))
    going.wait(seconds + 60)
    return statistics.median(times), times[len(times) * 99 // 100], gang.counts()['cpu_s'] / seconds, len(times)


def _row(node, others, what, count, seconds):
    gang = Gang(node, count, f'{what}-{count}'.replace('_', '-'))
    run.wait_for('the pods to be served', gang.are_there)
    pid = node.agentd.worker_pid()
    Path(f'/proc/{pid}/clear_refs').write_text('5')
    p50, p99, cores, n = _measure(gang, others, what, seconds)
    peak = next(int(line.split()[1]) >> 10 for line in Path(f'/proc/{pid}/status').read_text().splitlines()
                if line.startswith('VmHWM'))
    of_control = _measure(gang, others, 'burn', seconds, cores / count)
    print(f'| {what} | {count} | {peak} | {p50:.1f} / {p99:.1f} | {of_control[0]:.1f} / {of_control[1]:.1f} | '
          f'{p99 / of_control[1]:.1f} | {cores:.2f} | {n} |', flush=True)
    if node.agentd.worker_pid() != pid:
        raise RuntimeError('the worker was replaced')
    gang.remove()


def main(seconds):
    print('| attack | pods | worker\'s peak, MiB | ms, p50 / p99 | control | p99 ratio | cores | asked |')
    print('|---|---|---|---|---|---|---|---|')
    with run.run() as made, netns.own():
        node = Node(*made, mode='release')
        node.agentd.settings.update(log_level='info')
        try:
            others = [node.pod(f'other-{n}') for n in range(OTHERS)]
            node.agentd.start()
            for pod in others:
                pod.wait_served()
            for pod in others:
                pod.call(timed, pod.mount / 'socket', 1)  # its process is started
            for what in ATTACKS:
                for count in COUNTS:
                    _row(node, others, what, count, seconds)
        finally:
            node.remove()


if __name__ == '__main__':
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 6)
