"""The table of releases in docs/SUPPORT.md, from what a run of tests/tools/run-istiod wrote.

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
from tests.real import support

SECTION = 'Releases'
TOPICS = {'test_mixed': 'mesh', 'test_twins': 'twins', 'test_life': 'life', 'test_refusals': 'refusals', 'test_tools': 'istioctl',
          'test_machines': 'machines'}
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
    return f'stock istiods: {outcomes.count("passed")} passed, {len(outcomes) - outcomes.count("passed")} failed; see {support.FILE.relative_to(TOP)}'


def kept():
    """The rows that the page has."""
    cells = [[c.strip() for c in line.strip('|').split('|')] for line in support.section(SECTION).splitlines() if re.match(r'\| \d', line)]
    return {(c[0], c[1]): c for c in cells if len(c) == len(CELLS)}


def newest_first(key):
    return [[-int(n) for n in re.findall(r'\d+', version)] for version in key]


def main(results, commit):
    rows = {**kept(), **rows_of(results, commit)}
    table = [CELLS, ['---'] * len(CELLS), *(rows[key] for key in sorted(rows, key=newest_first))]
    support.put(SECTION, '\n'.join(f'| {" | ".join(cells)} |' for cells in table).replace('| --- |', '|---|').replace(' --- |', '---|'))
    print(total(results))


if __name__ == '__main__':
    main(*sys.argv[1:])
