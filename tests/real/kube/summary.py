"""What runs on real nodes found, in docs/SUPPORT.md.  Each kind of node is a run of pytest, which keeps its results in build/real/results/.

python3 -m tests.real.kube.summary whole        puts them together
python3 -m tests.real.kube.summary soak WORD... adds what the full counts of chosen cases found: whole runs leave it there
"""
import datetime
import json
import os
import platform
import re
import subprocess
import sys

from tests.e2e.run import TOP
from tests.real import support

from . import images, load
from .node import NEWER

WHOLE, SOAK = 'Cases', 'Full counts'
KEPT = TOP / 'build' / 'real' / 'results'
KINDS = 'container', 'whole', 'systemd'  # docs/SUPPORT.md says what they are
SOAK_HEAD = ['| tests (`make test-kube KUBE=…`) | case | node | result | slowest | date | commit |', '|---|---|---|---|---|---|---|']
_results = {}  # {kind: {case: (outcome, seconds, properties)}}


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


def keep():
    KEPT.mkdir(parents=True, exist_ok=True)
    for kind, cases in _results.items():
        (KEPT / f'{kind}.json').write_text(json.dumps({'cases': cases, 'requests': load.totals}))


def _commit():
    head = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=TOP, capture_output=True, text=True, check=False)
    changed = subprocess.run(['git', 'status', '--porcelain', '-uno'], cwd=TOP, capture_output=True, text=True, check=False)
    return (head.stdout.strip() or 'unknown') + (' and uncommitted changes' if changed.stdout else '')


def _version(*argv):
    return re.search(r'\d+\.\d+\.\d+', subprocess.run(argv, capture_output=True, text=True, check=True).stdout)[0]


def _cases(of):
    """{case: [result]}, one for each of its parameters."""
    cases = {}
    for case, result in of['cases'].items():
        cases.setdefault(re.sub(r' \(.*\)$', '', case), []).append(result)
    return cases


def _passed(results):
    return all(outcome == 'passed' for outcome, _, _ in results)


def _measured(results):
    """What the slowest one recorded."""
    return ', '.join(f'{name} {value}' for name, value in max(results, key=lambda r: r[1])[2])


def _found():
    return {kind: json.loads((KEPT / f'{kind}.json').read_text()) for kind in KINDS if (KEPT / f'{kind}.json').exists()}


def add_soak(words):
    """A row for each case, by its tests, name and kind of node; rows of others stay."""
    rows = {tuple(row.split(' | ')[:3]): row for row in support.section(SOAK).splitlines() if row.startswith('| `')}
    chosen = ' '.join(f'"{word}"' if ' ' in word else word for word in words)
    for kind, of in _found().items():
        for case, results in _cases(of).items():
            came = f'{len(results)} passed' if _passed(results) else '**not passed**'
            row = f'| `{chosen}` | {case} | {kind} | {came} | {_measured(results)} | {datetime.date.today()} | {_commit()} |'
            rows[tuple(row.split(' | ')[:3])] = row
    support.put(SOAK, '\n'.join([*SOAK_HEAD, *rows.values()]))


def write():
    found = _found()
    asked, failed = (sum(of['requests'][i] for of in found.values()) for i in (0, 1))
    cases = {}
    for kind, of in found.items():
        for case, results in _cases(of).items():
            cases.setdefault(case, {})[kind] = results
    lines = [
        f'{datetime.date.today()}, commit {_commit()}: Linux {platform.release()}; Kubernetes 1.36.2; '
        f'containerd {_version("containerd", "--version")} with runc {_version("runc", "--version")}, on the node with systemd '
        f'{_version(NEWER / "containerd", "--version")} with {_version(NEWER / "runc", "--version")}; istiod {images.ISTIO_VERSION} with its '
        f'stock chart and webhook. Of {asked} requests during restarts, evictions and upgrades {failed} failed.', '',
        '| case | passed on |', '|---|---|']
    for case, ran in cases.items():
        kinds = [kind for kind in ran if _passed(ran[kind])]
        where = 'all' if kinds == list(KINDS) else ', '.join(kinds + [f'**not on {kind}**' for kind in ran if kind not in kinds])
        measured = _measured([r for results in ran.values() for r in results])
        lines.append(f'| {case} | {where}{", " if measured else ""}{measured} |')
    support.put(WHOLE, '\n'.join(lines))


if __name__ == '__main__':
    write() if sys.argv[1] == 'whole' else add_soak(sys.argv[2:])
