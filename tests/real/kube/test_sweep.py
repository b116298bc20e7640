"""A run that is killed."""
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e import run

_RUN = '''
import signal
from tests.e2e import run
from tests.real.kube.node import Node
with run.run() as (root, cgroup):
    Node(root, cgroup).boot(order=('etcd', 'containerd'))
    print(run.RUN, flush=True)
    signal.pause()
'''


def test_its_processes_end_with_it_and_the_next_run_removes_the_rest():
    child = subprocess.Popen([sys.executable, '-c', _RUN], stdout=subprocess.PIPE, text=True, cwd=run.TOP)
    name = child.stdout.readline().strip()
    cgroup, folder = run.cgroup_root() / name, Path(tempfile.gettempdir()) / name
    assert 'populated 1' in (cgroup / 'cgroup.events').read_text()
    child.kill()
    child.wait()
    run.wait_for('its processes to end', lambda: not cgroup.exists() or 'populated 0' in (cgroup / 'cgroup.events').read_text())
    run.sweep()
    assert not cgroup.exists() and not folder.exists()
