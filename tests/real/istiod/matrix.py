"""docs/SUPPORT.md, from what a run of tests/tools/run-istiod wrote.

    python -m tests.real.istiod.matrix RESULTS COMMIT

A row is an istiod and an Envoy.  Rows that this run did not make anew stay as they are, with their own date and commit.
"""
import collections
import datetime
import json
import re
import sys
from pathlib import Path

from tests.e2e.run import TOP

FILE = TOP / 'docs' / 'SUPPORT.md'
TOPICS = {'test_mixed': 'mesh', 'test_twins': 'twins', 'test_life': 'life', 'test_refusals': 'refusals', 'test_tools': 'istioctl',
          'test_machines': 'machines'}
HEAD = '''# What agentd works with

## Nodes, kernels, distributions

| what | what was run there |
|---|---|
| Kubernetes 1.36 (kubelet, API server, scheduler), containerd 1.6 and 2.2 | everything of [KUBE.md](KUBE.md), on one node of each of three kinds |
| Kubernetes 1.28 to 1.37 | the chart, rendered and checked against the schemas; nothing ran |
| Linux 6.18 | everything |
| Linux 5.10, 6.1, 6.12, 7.3 (Debian's) | the redirection's checks in a VM (`make test-vm`), with a real Envoy on 5.10: [what older ones lack](BARE_METAL.md#older-kernels) |
| Debian 12 | `make test`, lint, the image, the package |
| Debian 13 | build and `make run` in a bare system (`tests/tools/clean-room trixie run`, 2026-11-23); of the tests none yet: `make soak` would |
| Ubuntu 24.04 | build and `make run` in a bare system of its archive (`tests/tools/clean-room noble run`, 2026-11-23), on this machine's kernel; c-ares is shared there; of the tests none |
| amd64 | everything |
| arm64 | cross-built; its programs start under qemu |
| CRI-O, a second node, a managed cluster | nothing |

## istiod and Envoy

`make test-istiod` wrote this table: stock istiods of Istio's releases, built from their sources, with agentd, upstream's Envoys
of PyPI and pods with the same release's pilot-agent beside ours. A cell says how many tests were run and passed.

| column | what is tried (`tests/real/istiod/`) |
|---|---|
| mesh | certificates, all configuration ACKed, mTLS STRICT both ways between pods of both kinds, plain text refused |
| twins | one pod, first with pilot-agent, then with agentd: the same resources byte for byte, the same node field by field |
| life | under traffic, without a failed request: outage, half-ready start, connections that grow old, root rotation, restart |
| refusals | tokens that istiod refuses, nodes that claim to be others, Envoys that do not read |
| istioctl | proxy-status, proxy-config, describe, analyze, bug-report with a pod of agentd's |
| machines | from the files of istioctl to traffic that follows the probe; WorkloadEntries and refusals as the development istiod has them |

What differs between the twins stands in `tests/real/istiod/test_twins.py`, each with its reason. Each release is tried with
everything on the newest Envoy, with the mesh and the twins on the oldest. What is not listed was not tried; of `bug-report` only
the dry run, for its archive needs a cluster. Of 1.28.3 one library is another version, no code of which is in its programs.

'''
CELLS = ['istiod', 'Envoy', *TOPICS.values(), 'date', 'commit']


def cell(outcomes):
    """Of one topic: [(test, passed)]."""
    failed = sorted(name for name, good in outcomes.items() if not good)
    if failed:
        return f'**{len(failed)} of {len(outcomes)} failed**: {", ".join(failed)}'
    return f'{len(outcomes)} passed' if outcomes else 'not run'


def rows_of(results, commit):
    """{(istiod, Envoy): cells} of a run."""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    for line in Path(results).read_text().splitlines():
        r = json.loads(line)
        file, _, name = r['test'].partition('.py::')
        of = found[r['istiod'], r['envoy']][Path(file).name]
        of[name] = of.get(name, True) and r['outcome'] == 'passed'
    today = datetime.datetime.now(datetime.timezone.utc).strftime('%F')
    return {key: [*key, *(cell(topics[t]) for t in TOPICS), today, commit] for key, topics in found.items()}


def total(results):
    outcomes = [json.loads(line)['outcome'] for line in Path(results).read_text().splitlines()]
    return f'stock istiods: {outcomes.count("passed")} passed, {len(outcomes) - outcomes.count("passed")} failed; see {FILE.relative_to(TOP)}'


def kept():
    """The rows that the file has."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    cells = [[c.strip() for c in line.strip('|').split('|')] for line in lines if re.match(r'\| \d', line)]
    return {(c[0], c[1]): c for c in cells if len(c) == len(CELLS)}


def newest_first(key):
    return [[-int(n) for n in re.findall(r'\d+', version)] for version in key]


def main(results, commit):
    rows = {**kept(), **rows_of(results, commit)}
    table = [CELLS, ['---'] * len(CELLS), *(rows[key] for key in sorted(rows, key=newest_first))]
    FILE.write_text(HEAD + '\n'.join(f'| {" | ".join(cells)} |' for cells in table).replace('| --- |', '|---|').replace(' --- |', '---|') + '\n')
    print(total(results))


if __name__ == '__main__':
    main(*sys.argv[1:])
