"""python3 -m tests.e2e [FILE.py...] [PYTEST ARGUMENT...]: each file of tests in a process of its own, E2E_JOBS of them at a time (tests/tools/run-e2e).

The processes are forked from this one, which has imported what nearly all of them need: by itself each would import for most of a second.
What is imported here knows nothing of the process that it is in (run.py does).  Output is printed when a file is through.
"""
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault('GRPC_ENABLE_FORK_SUPPORT', '0')  # as conftest.py has it

import pytest  # noqa: E402
import yaml  # noqa: E402, F401

import tests.e2e.clients  # noqa: E402
import tests.istiod.control  # noqa: E402
import tests.istiod.server  # noqa: E402
import tests.kubelet.server  # noqa: E402, F401

HERE = Path(__file__).parent
FAILED = Path(os.environ.get('AGENTD_BUILD', 'build')) / 'failed'
# What takes longest first, so that none of it is alone at the end: the largest files, and a few that are small.
FIRST = ['test_memory', 'test_pace', 'test_redirect_differential', 'test_csi_life', 'test_pushes', 'test_full_node', 'test_redirect_sockets',
         'test_succession', 'test_waits', 'test_work', 'test_traffic', 'test_redirect_audit', 'test_systemd_strict']
# Hypothesis works without its plugin, whose import costs each file as much as pytest's.
OPTIONS = ['-p', 'no:cacheprovider', '-p', 'no:hypothesispytest', '-q', '--tb=short', '--timeout', '600', '--durations', '3']
CHOSE_NONE = 5
TOTAL = re.compile(r'^(?:=+ )?(\d+ .*) in [\d.]+s', re.M)


def files(chosen):
    found = sorted(map(Path, chosen) if chosen else HERE.glob('test_*.py'), key=lambda f: f.stat().st_size, reverse=True)
    return sorted(found, key=lambda f: FIRST.index(f.stem) if f.stem in FIRST else len(FIRST))


class Run:
    def __init__(self, logs):
        self._logs, self._running = logs, {}
        self.counts, self.lines = Counter(), []

    def start(self, file, args):
        log = self._logs / f'{file.stem}.log'
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self._running.clear()  # they are its parent's
            os.setpgid(0, 0)  # Ctrl-C is for the parent, which tells each of them once
            to = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(to, 1)
            os.dup2(to, 2)
            os.close(to)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            sys.exit(pytest.main([*OPTIONS, *args, os.path.relpath(file)]))
        self._running[pid] = log, time.monotonic()

    def wait(self):
        """For one of them."""
        pid, status, used = os.wait4(-1, 0)
        (log, start), code = self._running.pop(pid), os.waitstatus_to_exitcode(status)
        text = log.read_text(errors='replace')
        if code != CHOSE_NONE:
            print(f'-- {log.stem}: {time.monotonic() - start:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU', text, sep='\n', end='', flush=True)
        total = TOTAL.findall(text)[-1:]
        self.counts.update({what: int(n) for n, what in re.findall(r'(\d+) (passed|failed|error|skipped)', ''.join(total))})
        self.lines += re.findall(r'^(?:FAILED|ERROR|kept:) .*', text, re.M)
        if code not in (0, CHOSE_NONE):
            self.counts['broken'] += code != 1 or not total  # interrupted, or it broke before its summary
            (FAILED / log.stem).mkdir(parents=True, exist_ok=True)
            shutil.copy(log, FAILED / log.stem / 'pytest.log')

    def all(self, chosen, args, jobs):
        try:
            for file in files(chosen):
                if len(self._running) == jobs:
                    self.wait()
                self.start(file, args)
            while self._running:
                self.wait()
        except KeyboardInterrupt:
            for pid in self._running:
                os.kill(pid, signal.SIGTERM)  # it removes what it made
            while self._running:
                self.wait()
            shutil.rmtree(self._logs)
            sys.exit('run-e2e: interrupted')


def _interrupt(*_):
    raise KeyboardInterrupt


def main(args):
    for old in FAILED.glob('test_*'):
        shutil.rmtree(old)
    signal.signal(signal.SIGTERM, _interrupt)
    logs = Path(tempfile.mkdtemp())
    gc.freeze()  # what is imported is nothing to look through, or to copy
    run = Run(logs)
    chosen = [a for a in args if a.endswith('.py')]
    run.all(chosen, [a for a in args if a not in chosen], int(os.environ.get('E2E_JOBS') or 2 * len(os.sched_getaffinity(0)) + 1))
    shutil.rmtree(logs)
    print(*run.lines, sep='\n', end='\n' if run.lines else '')
    failed = run.counts['failed'] + run.counts['error'] + run.counts['broken']
    print(f'end to end: {run.counts["passed"]} passed, {failed} failed, {run.counts["skipped"]} skipped{f"; see {FAILED}" if failed else ""}')
    return 1 if failed or not run.counts['passed'] else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
