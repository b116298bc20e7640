"""One cluster of each kind of node for all tests.  What a failed test leaves to read is in build/failed/real/.

A case comes out the same on each kind if it is marked `on` one: there it runs.  A soak runs all cases on all kinds, and so does a run
of one kind alone, or of chosen cases.
"""
import contextlib
import os
import shutil
import subprocess

import pytest

from tests.e2e import run
from tests.e2e.run import TOP

from . import apps, summary
from .cluster import Cluster
from .node import Node
from .waiting import wait_for

FAILED = TOP / 'build' / 'failed' / 'real'
KINDS = os.environ.get('KUBE_NODES', 'container whole systemd').split()
ALL_KINDS = os.environ.get('KUBE_ALL_NODES', '').split() or KINDS  # a process has one of them


def pytest_configure(config):
    if os.geteuid() != 0:
        pytest.exit('a node makes namespaces and cgroups: root is needed', 2)
    config.addinivalue_line('markers', 'on(kind): in a short run this kind of node alone has the case')


def pytest_collection_modifyitems(config, items):
    if os.environ.get('AGENTD_SOAK') or config.option.keyword:
        return

    def elsewhere(item):
        mark = item.get_closest_marker('on')
        return mark and mark.args[0] in ALL_KINDS and mark.args[0] not in KINDS
    dropped = [item for item in items if elsewhere(item)]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in dropped]


@pytest.fixture(scope='session')
def this_run():
    with run.run() as made:
        yield made


@pytest.fixture(scope='session', params=KINDS)
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


@pytest.fixture(scope='session')
def mesh(cluster):
    """Two clients and two servers, all of the mesh, which takes mTLS only."""
    cluster.apply(apps.namespace())
    cluster.apply(apps.strict(), *apps.pair())
    for name in ('web', 'client'):
        cluster.rolled_out(f'deployment/{name}')
    wait_for('the first answer', lambda: cluster.ask())
    return cluster


@pytest.fixture
def well(mesh):
    """Afterwards."""
    yield
    wait_for('agentctl to say that all is well', mesh.well)


@contextlib.contextmanager
def applied(mesh):
    """Applies objects that go with the block, and leave nothing on the node."""
    objects = []

    def make(*more):
        objects.extend(more)
        mesh.apply(*more)
    yield make
    uids = [p['metadata']['uid'] for p in mesh.get('pods') if p['metadata']['labels'].get('app') not in ('web', 'client')]
    mesh.delete(*objects)
    wait_for('nothing to be left of the pods', lambda: not mesh.left_of(uids), 60 + 3 * len(uids))


@pytest.fixture
def made(mesh):
    with applied(mesh) as make:
        yield make


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
