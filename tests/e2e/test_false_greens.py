"""No page says that all is well while a client does not get what it should, and none says otherwise when all is.

Misfortunes begin and end at random, one or two at a time; after each step all pages are compared with what clients get.
AGENTD_SEED chooses the run; AGENTD_SOAK=1: a hundred misfortunes.
"""
import contextlib
import os
import random
import time

import pytest

from .conftest import measured
from .misfortunes import ALL, World

SOAK = bool(os.environ.get('AGENTD_SOAK'))
SEED = os.environ.get('AGENTD_SEED', '36')
STEPS, MISFORTUNES = 6, 100
METRICS = 'agentd_pods_unserved', 'agentd_pod_problem', 'agentd_crl_problem'
LATE_S = 25 if SOAK else 60  # then a page that is wrong is no longer only late


class Pages:
    """All that agentd says of itself and its pods, at one moment."""

    def __init__(self, agentd):
        self.agentd, self.said = agentd, {}
        self.status = self._ctl('status')
        self.pods = self._ctl('pods')
        self.ready = self._ctl('ready')
        self.healthy = self._page('healthz').startswith('HTTP/1.1 200')
        self.metrics = self._page('metrics')
        self.rows = {}
        with contextlib.suppress(OSError, ValueError):
            self.rows = {p['name']: p for p in agentd.ctl('pods')['pods']}

    def _ctl(self, *command):
        status, self.said[command[0]] = self.agentd.ctl_text(*command)
        return status

    def _page(self, name):
        try:
            return self.agentd.page(name)
        except OSError as e:
            return str(e)

    def _sum(self, name, *labels):
        return sum(float(line.rpartition(' ')[2]) for line in self.metrics.splitlines()
                   if line.startswith((f'{name}{{', f'{name} ')) and all(label in line for label in labels))

    def _is_zero(self, names, *labels):
        return self.metrics.startswith('HTTP/1.1 200') and not any(self._sum(name, *labels) for name in names)

    def _is_green(self, pod):
        row = self.rows.get(pod)
        return row and row['ready'] and row['served'] in ('yes', 'unasked')

    def reds(self):
        """What says that something is wrong."""
        found = [name for name in ('status', 'pods', 'ready') if getattr(self, name)]
        found += [] if self.healthy else ['healthz']
        found += [f'row of {name}' for name in self.rows if not self._is_green(name)]
        return found + [m for m in METRICS if self._sum(m)]

    def greens(self, missing):
        """What says that nothing is, though this is missing."""
        if not missing:
            return []
        found = [name for name in ('status', 'pods') if not getattr(self, name)]
        found += ['all metrics'] if self._is_zero(METRICS) else []
        for what in missing:
            pod = what.rpartition(' ')[2]
            if pod != what:
                found += [f'row of {pod}'] if self._is_green(pod) else []
                found += [f'metric of {pod}'] if self._is_zero(METRICS[1:2], f'pod="{pod}"') else []
        return found

    def text(self):
        return '\n'.join(f'{name}: {text}' for name, text in self.said.items())


class Run:
    def __init__(self, world, dice):
        self.world, self.dice, self.active = world, dice, {}
        self.steps, self.begun = [], 0
        self.said = self.healed = 0  # the longest time until the pages were right

    def step(self):
        possible = [m for m in ALL if m.goes_with(self.active)]
        if self.active and (len(self.active) == 2 or not possible or self.dice.random() < 0.5):
            self.end(self.dice.choice(list(self.active)))
        else:
            self.begin(self.dice.choice(possible))

    def begin(self, m):
        self.note(f'+{m.name}')
        self.begun += 1
        self.active[m] = m.begin(self.world, self.dice)
        self.active[m].__enter__()
        self.check(m)

    def end(self, m):
        self.note(f'-{m.name}')
        self.active.pop(m).__exit__(None, None, None)
        self.check()
        self.world.let_go()

    def note(self, step):
        self.steps.append(step)
        print(time.strftime('%X'), step, flush=True)

    def check(self, begun=None):
        """Until the pages are right, and it is felt and said: for a while one that is wrong may only be late."""
        self.world.mark()
        began = time.monotonic()
        while wrong := self.wrong(begun):
            assert time.monotonic() - began < LATE_S, f'seed {SEED}, {" ".join(self.steps)}: {wrong}'
            time.sleep(0.2)
        took = time.monotonic() - began
        if begun:
            self.said = max(self.said, took)
        elif not self.active:
            self.healed = max(self.healed, took)
        print(f'{took:.1f} s', flush=True)

    def wrong(self, begun):
        """For people; '': nothing is."""
        missing, pages = self.world.missing(), Pages(self.world.agentd)
        if self.active:
            wrong = pages.greens(missing) + (begun.unseen(missing, pages.status) if begun else [])
        else:
            wrong = [*missing, *pages.reds()]
        there = ', '.join(m.name for m in self.active)
        return wrong and f'wrong is {wrong}; there is {there or "nothing"}, missing is {missing}\n{pages.text()}'


@pytest.mark.timeout(3600 if SOAK else 600)
def test_pages_say_what_clients_get(node):
    print(f'seed {SEED}', flush=True)
    run = Run(World(node).start(), random.Random(SEED))
    while run.begun < MISFORTUNES if SOAK else len(run.steps) < STEPS:
        run.step()
    while run.active:
        run.end(next(iter(run.active)))
    measured.append(f'{run.begun} misfortunes of seed {SEED}: all was said after {run.said:.1f} s, '
                    f'and well after {run.healed:.1f} s')
