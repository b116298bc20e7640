"""What hostile pods cost the others: `python3 -m tests.bench.hostile [SECONDS [ROUNDS [ATTACK...]]]`, as root.

Each attack of 1, 10 and 50 pods, or of PODS='10 50'.  A round is the attack and its control, in which the same pods burn the same CPU
elsewhere, for SECONDS (default 5) each; every second round begins with the control.  Meanwhile others ask for their root
certificate on connections of their own.  The ratio is that of the p99s over ROUNDS (default 10), and in brackets where it
lies in 90 % of as many rounds that are drawn from them anew: what else the machine does hits both halves of a round.

With CPU_CGROUP=DIR, a directory of the cpu controller, agentd, the attackers and the rest have a group of DIR's each, of the
same weight, as on a node.  What else runs on a busy machine is kept away when DIR weighs much more.
"""
import contextlib
import os
import random
import statistics
import sys
import time
from pathlib import Path

from tests.e2e import attacker, netns, run
from tests.e2e.gang import Gang
from tests.e2e.node import Node

ATTACKS = 'small_references', 'half_open', 'huge_message', 'many_messages', 'reset_flood'
COUNTS = tuple(map(int, os.environ.get('PODS', '1 10 50').split()))
OTHERS, PAUSE_S = 20, 0.7  # six requests each time: within a pod's share


def _join(top, name):
    if top:
        (Path(top) / name).mkdir(exist_ok=True)
        (Path(top) / name / 'cgroup.procs').write_text(str(os.getpid()))


@contextlib.contextmanager
def group(name):
    """What is started in it is in that group."""
    top = os.environ.get('CPU_CGROUP')
    _join(top, name)
    try:
        yield
    finally:
        _join(top, 'rest')


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


def p99(times):
    return sorted(times)[len(times) * 99 // 100]


def pooled(rounds):
    return [t for times in rounds for t in times]


def ratio(rounds):
    """Of (attacked, control)s."""
    attacked, control = zip(*rounds)
    return p99(pooled(attacked)) / p99(pooled(control))


def spread(rounds):
    draws = random.Random(1)
    found = sorted(ratio(draws.choices(rounds, k=len(rounds))) for _ in range(1000))
    return found[50], found[949]


def _measure(gang, others, what, seconds, share=1.0):
    """(times of the questions, CPU of the gang in cores)"""
    with group('attackers'):
        going = gang.start(what, seconds, share)
    run.wait_for('all of them to have begun', lambda: gang.began() == len(gang.pods))
    found = [p.submit(timed, p.mount / 'socket', seconds - 0.5) for p in others]
    times = [t for f in found for t in f.result(seconds + 60)]
    going.wait(seconds + 60)
    return times, gang.counts()['cpu_s'] / seconds


def _cpu_s(pid):
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _row(node, others, what, count, seconds, rounds):
    gang = Gang(node, count, f'{what}-{count}'.replace('_', '-'))
    run.wait_for('the pods to be served', gang.are_there)
    pid = node.agentd.worker_pid()
    Path(f'/proc/{pid}/clear_refs').write_text('5')
    found, cores, worker = [], None, 0
    for n in range(rounds):
        if n % 2:  # as much as in the round before
            control, _ = _measure(gang, others, 'burn', seconds, cores / count)
        used = _cpu_s(pid)
        times, cores = _measure(gang, others, what, seconds)
        worker += _cpu_s(pid) - used
        if n % 2 == 0:
            control, _ = _measure(gang, others, 'burn', seconds, cores / count)
        found.append((times, control))
    peak = next(int(line.split()[1]) >> 10 for line in Path(f'/proc/{pid}/status').read_text().splitlines()
                if line.startswith('VmHWM'))
    ours, theirs = (pooled(half) for half in zip(*found))
    low, high = spread(found)
    print(f'| {what} | {count} | {peak} | {statistics.median(ours):.1f} / {p99(ours):.1f} | '
          f'{statistics.median(theirs):.1f} / {p99(theirs):.1f} | {ratio(found):.1f} ({low:.1f} to {high:.1f}) | '
          f'{cores:.2f} + {worker / rounds / seconds:.2f} | {len(ours)} |', flush=True)
    if node.agentd.worker_pid() != pid:
        raise RuntimeError('the worker was replaced')
    gang.remove()
    return ratio(found)


def main(seconds, rounds, attacks):
    print('| attack | pods | worker\'s peak, MiB | ms, p50 / p99 | control | p99 ratio | cores: theirs + the worker\'s | asked |')
    print('|---|---|---|---|---|---|---|---|')
    with group('rest'), run.run() as made, netns.own():
        node = Node(*made, mode='release')
        node.agentd.settings.update(log_level='info')
        try:
            others = [node.pod(f'other-{n}') for n in range(OTHERS)]
            with group('agentd'):
                node.agentd.start()
            for pod in others:
                pod.wait_served()
            for pod in others:
                pod.call(timed, pod.mount / 'socket', 1)  # its process is started
            ratios = [_row(node, others, what, count, seconds, rounds) for what in attacks for count in COUNTS]
            print(f'{sum(r <= 2 for r in ratios)} of {len(ratios)} rows are at 2 or below')
        finally:
            node.remove()


if __name__ == '__main__':
    main(*(kind(given) for kind, given in zip((float, int), (*sys.argv[1:3], *('5', '10')[len(sys.argv[1:3]):]))),
         sys.argv[3:] or ATTACKS)
