"""docs/KUBE.md: what a whole run found.  Each kind of node is a run of pytest, which keeps its results in build/real/results/.

python3 -m tests.real.kube.summary whole        puts them together
python3 -m tests.real.kube.summary soak WORD... adds what the full counts of chosen cases found, below: whole runs leave it there
"""
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time

from tests.e2e.run import TOP

from . import images, load
from .node import NEWER

DOC = TOP / 'docs' / 'KUBE.md'
KEPT = TOP / 'build' / 'real' / 'results'
KINDS = {'container': 'node in a cgroup namespace, dual stack', 'whole': 'node that sees the whole cgroup tree, IPv4',
         'systemd': 'node in a cgroup namespace, IPv6, systemd as process 1 and cgroup driver'}
SOAK = '''
## The full counts

Chosen cases, each with the numbers that a soak has: 20 reboots, 250 pods, 5 minutes without agentd.

| command | case | node | passed | time | date | commit |
|---|---|---|---|---|---|---|
'''
BEGAN = time.monotonic()
_results = {}  # {kind: {case: (outcome, seconds, properties)}}
cgroup = None  # of all of a run's nodes
_cpu_us = {'computed': 0, 'stalled': 0}


def add(report):
    """The outcome of a case is its worst one of setup, call and teardown.  One that makes its own node is of this run's kind."""
    found = re.fullmatch(r'.*::(\w+)(?:\[(\w+)-?(.*)\])?', report.nodeid)
    name, kind, parameter = found.groups()
    kind = kind or os.environ.get('KUBE_NODES')
    if kind not in KINDS:
        return
    case = name.removeprefix('test_').replace('_', ' ') + (f' ({parameter})' if parameter else '')
    rows = _results.setdefault(kind, {})
    outcome, seconds, properties = rows.get(case, ('passed', 0, []))
    if report.outcome != 'passed':
        outcome = report.outcome
    rows[case] = outcome, seconds + report.duration, properties or report.user_properties


def _cpu():
    """Minutes: what the node's processes, those that ended too, computed; how long all that could have had to wait for a core."""
    if cgroup and cgroup.exists():  # it goes before the last case has its result
        _cpu_us['computed'] = int((cgroup / 'cpu.stat').read_text().split()[1])
        if (cgroup / 'cpu.pressure').exists():  # a kernel may be without
            _cpu_us['stalled'] = int((cgroup / 'cpu.pressure').read_text().rpartition('total=')[2])
    return {name: us / 6e7 for name, us in _cpu_us.items()}


def keep():
    KEPT.mkdir(parents=True, exist_ok=True)
    for kind, cases in _results.items():
        found = {'cases': cases, 'requests': load.totals, 'minutes': (time.monotonic() - BEGAN) / 60, **_cpu()}
        (KEPT / f'{kind}.json').write_text(json.dumps(found))


def _commit():
    head = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=TOP, capture_output=True, text=True, check=False)
    changed = subprocess.run(['git', 'status', '--porcelain', '-uno'], cwd=TOP, capture_output=True, text=True, check=False)
    return (head.stdout.strip() or 'unknown') + (' and uncommitted changes' if changed.stdout else '')


def _version(*argv):
    return re.search(r'\d+\.\d+\.\d+', subprocess.run(argv, capture_output=True, text=True, check=True).stdout)[0]


def _cell(result):
    if not result:
        return '-'
    outcome, seconds, properties = result
    more = ''.join(f', {name} {value}' for name, value in properties)
    return f'{"" if outcome == "passed" else f"**{outcome}**, "}{seconds:.0f} s{more}'


def _found():
    return {kind: json.loads((KEPT / f'{kind}.json').read_text()) for kind in KINDS if (KEPT / f'{kind}.json').exists()}


def _added():
    """The rows of earlier soaks, by command, case and kind."""
    rows = DOC.read_text().partition(SOAK)[2].splitlines() if DOC.exists() else []
    return {tuple(row.split(' | ')[:3]): row for row in rows if row.startswith('| `')}


def add_soak(words):
    """A row for each case; its parameters are counted."""
    rows, chosen = _added(), ' '.join(f'"{word}"' if ' ' in word else word for word in words)
    for kind, of in _found().items():
        cases = {}
        for case, (outcome, seconds, properties) in of['cases'].items():
            cases.setdefault(re.sub(r' \(.*\)$', '', case), []).append((outcome, seconds, properties))
        for case, results in cases.items():
            outcome = next((o for o, _, _ in results if o != 'passed'), 'passed')
            last = _cell((outcome, sum(s for _, s, _ in results), results[-1][2]))
            times = f'{sum(o == "passed" for o, _, _ in results)} of {len(results)}'
            row = f"| `AGENTD_SOAK=1 make test-kube KUBE='{chosen}'` | {case} | {kind} | {times} | {last} | {datetime.date.today()} | {_commit()} |"
            rows[tuple(row.split(' | ')[:3])] = row
    DOC.write_text(DOC.read_text().partition(SOAK)[0] + SOAK + '\n'.join([*rows.values(), '']))


def write():
    found, added = _found(), _added()
    asked, failed = (sum(of['requests'][i] for of in found.values()) for i in (0, 1))
    slowest = max(found.values(), key=lambda of: of['minutes'])
    computed = sum(of['computed'] for of in found.values())
    cases = dict.fromkeys(case for of in found.values() for case in of['cases'])
    lines = [
        '# A real node', '',
        f'What `make test-kube` wrote on {datetime.date.today()} at commit {_commit()}: Linux {platform.release()}, '
        f'{os.cpu_count()} cores, all nodes side by side, {slowest["minutes"]:.0f} min. Kubernetes 1.36.2 '
        f'(kubelet, API server, controller manager, scheduler), containerd {_version("containerd", "--version")} and '
        f'runc {_version("runc", "--version")} (on the node with systemd: containerd {_version(NEWER / "containerd", "--version")} '
        f'and runc {_version(NEWER / "runc", "--version")}), istiod {images.ISTIO_VERSION} with its stock chart and webhook, '
        'Envoys of PyPI.', '',
        f'Requests during restarts, evictions and upgrades: {asked}, of which {failed} failed. The nodes computed for {computed:.0f} min '
        f'in all. For {slowest["stalled"]:.0f} min the slowest one had work and no core, which other nodes and the machine\'s other users had. '
        'A case that has nothing to do with the kind of node runs on one of them (`AGENTD_SOAK=1`: on all).', '',
        '| case | ' + ' | '.join(KINDS.values()) + ' |', '|---|' + '---|' * len(KINDS)]
    for case in cases:
        lines.append(f'| {case} | ' + ' | '.join(_cell(found.get(kind, {'cases': {}})['cases'].get(case)) for kind in KINDS) + ' |')
    DOC.write_text('\n'.join([*lines, '']) + (SOAK + '\n'.join([*added.values(), '']) if added else ''))


if __name__ == '__main__':
    write() if sys.argv[1] == 'whole' else add_soak(sys.argv[2:])
