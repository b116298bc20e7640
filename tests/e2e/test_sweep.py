"""What a killed run left."""
import os
import subprocess
import sys
from pathlib import Path

from . import run


def test_runs_that_start_together_remove_it_once():
    left = f'{run.PREFIX}.{os.getpid()}.0'  # this process started later
    with run.alone(run.cgroup_root()):  # a file that starts meanwhile would take them from ip(8)'s hands
        cgroup = run.Cgroup(left)
        for n in range(20):
            run.sh('ip', 'netns', 'add', f'{left}.{n}')
    runs = [subprocess.Popen([sys.executable, '-c', 'from tests.e2e import run; run.sweep()'], cwd=run.TOP) for _ in range(3)]
    assert [process.wait() for process in runs] == [0, 0, 0]
    assert not cgroup.path.exists() and not list(Path('/run/netns').glob(f'{left}.*'))
