"""One cluster of each kind of node for all tests of a file.  What a failed test leaves to read is in build/failed/real/."""
import contextlib
import os
import shutil
import subprocess

import pytest

from tests.e2e import run
from tests.e2e.run import TOP

from . import summary
from .cluster import Cluster
from .node import Node

FAILED = TOP / 'build' / 'failed' / 'real'
KINDS = os.environ.get('KUBE_NODES', 'container whole systemd').split()


def pytest_configure(config):
    if os.geteuid() != 0:
        pytest.exit('a node makes namespaces and cgroups: root is needed', 2)


@pytest.fixture(scope='session')
def this_run():
    with run.run() as made:
        summary.cgroup = made[1].path
        yield made


@pytest.fixture(scope='module', params=KINDS)
def cluster(this_run, request):
    """A node that is up, with Istio's charts and ours installed."""
    root, cgroup = this_run
    node = Node(root, cgroup, request.param)
    made = Cluster(node)
    try:
        node.boot()
        made.wait_up()
        made.load_images()
        made.install_istio()
        made.install_agentd()
        yield made
    except BaseException:
        keep(made, request.param, 'the installation failed')
        raise
    finally:
        node.shut_down()
        shutil.rmtree(node.dir)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    summary.add(report)
    if report.when == 'teardown':
        summary.keep()  # after each case: a run that is cut off says so by what is missing
    if report.failed and 'cluster' in getattr(item, 'funcargs', {}):
        keep(item.funcargs['cluster'], item.name, report.longreprtext)
    return report


def keep(cluster, name, why):
    """Logs of the node's programs and of all containers, and what kubectl and agentctl say."""
    folder = FAILED / name.replace('/', '-')
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / 'why.txt').write_text(why)
    for log in cluster.node.logs():
        shutil.copy(log, folder)
    with contextlib.suppress(OSError):  # a pod's log may go meanwhile
        shutil.copytree(cluster.node.disk / 'var/log/pods', folder / 'pods')
    for page, ask in {'pods': lambda: cluster.kubectl('describe', 'pods', '-A'),
                      'status': lambda: cluster.agentctl('status'), 'redirect': lambda: cluster.agentctl('redirect'),
                      'meshed': lambda: cluster.agentctl('pods')}.items():
        try:
            text = ask()
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as e:
            text = str(e)
        (folder / f'{page}.txt').write_text(text)
