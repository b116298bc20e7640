"""docs/KUBE.md: what a whole run found, written by the run."""
import datetime
import os
import platform
import re
import subprocess
import time

from tests.e2e.run import TOP

from . import images, load
from .node import NEWER

DOC = TOP / 'docs' / 'KUBE.md'
KINDS = {'container': 'node in a cgroup namespace, dual stack', 'whole': 'node that sees the whole cgroup tree',
         'systemd': 'node in a cgroup namespace, dual stack, systemd as process 1 and cgroup driver'}
BEGAN = time.monotonic()
_results = {}  # {case: {kind: (outcome, seconds, properties)}}


def add(report):
    """The outcome of a case is its worst one of setup, call and teardown."""
    found = re.fullmatch(r'.*::(\w+)\[(\w+)-?(.*)\]', report.nodeid)
    if not found:
        return
    name, kind, parameter = found.groups()
    case = name.removeprefix('test_').replace('_', ' ') + (f' ({parameter})' if parameter else '')
    row = _results.setdefault(case, {})
    outcome, seconds, properties = row.get(kind, ('passed', 0, []))
    if report.outcome != 'passed':
        outcome = report.outcome
    row[kind] = outcome, seconds + report.duration, properties or report.user_properties


def _commit():
    head = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=TOP, capture_output=True, text=True, check=False)
    changed = subprocess.run(['git', 'status', '--porcelain', '-uno'], cwd=TOP, capture_output=True, text=True, check=False)
    return (head.stdout.strip() or 'unknown') + (' and uncommitted changes' if changed.stdout else '')


def _version(*argv):
    return re.search(r'\d+\.\d+\.\d+', subprocess.run(argv, capture_output=True, text=True, check=True).stdout)[0]


def _cell(result):
    if not result:
        return 'not run'
    outcome, seconds, properties = result
    more = ''.join(f', {name} {value}' for name, value in properties)
    return f'{"" if outcome == "passed" else f"**{outcome}**, "}{seconds:.0f} s{more}'


def write():
    asked, failed = load.totals
    lines = [
        '# A real node', '',
        f'What `make test-kube` wrote on {datetime.date.today()} at commit {_commit()}: Linux {platform.release()}, '
        f'{os.cpu_count()} cores, {(time.monotonic() - BEGAN) / 60:.0f} min. Kubernetes 1.36.2 (kubelet, API server, '
        f'controller manager, scheduler), containerd {_version("containerd", "--version")} and '
        f'runc {_version("runc", "--version")} (on the node with systemd: containerd {_version(NEWER / "containerd", "--version")} '
        f'and runc {_version(NEWER / "runc", "--version")}), istiod {images.ISTIO_VERSION} with its stock chart and webhook, '
        'Envoys of PyPI.', '',
        f'Requests during restarts, evictions and upgrades: {asked}, of which {failed} failed.', '',
        '| case | ' + ' | '.join(KINDS.values()) + ' |', '|---|' + '---|' * len(KINDS)]
    for case, row in _results.items():
        lines.append(f'| {case} | ' + ' | '.join(_cell(row.get(kind)) for kind in KINDS) + ' |')
    DOC.write_text('\n'.join([*lines, '']))
