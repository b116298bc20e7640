"""Fixtures.  Whatever a test gets is its own and goes with it, also when it fails."""
import os
import shutil
import signal
import sys

import pytest

# Before grpc is imported: cast.py forks beside it, and its own threads must not begin again in such a child.
os.environ.setdefault('GRPC_ENABLE_FORK_SUPPORT', '0')

from . import mesh, run  # noqa: E402
from .node import Node  # noqa: E402

TAIL = 60
measured = []  # what tests found and do not judge


def pytest_configure(config):
    if os.geteuid() != 0:
        pytest.exit('the end-to-end tests make network namespaces and cgroups: root is needed', 2)
    # SIGTERM unwinds like Ctrl-C, so that everything is removed.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))


def pytest_terminal_summary(terminalreporter):
    for line in measured:
        terminalreporter.write_line(f'measured: {line}')


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        item.failed = True
    return report


@pytest.fixture(scope='session')
def this_run():
    with run.run() as made:
        yield made


@pytest.fixture
def make_node(this_run, request):
    """Makes nodes.  At the end no log may hold a secret or a sanitizer's complaint."""
    nodes = []

    def make(kind=Node, **kw):
        nodes.append(kind(*this_run, **kw))
        return nodes[-1]
    yield make
    try:
        for node in nodes:
            node.remove()
        for node in nodes:
            assert not node.agentd.complaints()
            assert not node.leaks()
    except BaseException:
        request.node.failed = True
        raise
    finally:
        for node in nodes:
            if getattr(request.node, 'failed', False):
                show(node)
            shutil.rmtree(node.dir, ignore_errors=True)


@pytest.fixture
def capturing(make_node):
    """Makes nodes whose agentd redirects: in their own cgroup tree, with their own bpffs."""
    return lambda **kw: make_node(**kw).capture()


def show(node):
    for log in node.logs():
        lines = log.read_text(errors='replace').splitlines()
        print(f'---- {log.relative_to(node.dir)} (last {min(TAIL, len(lines))} of {len(lines)} lines)',
              *lines[-TAIL:], sep='\n', file=sys.stderr)
    for record in node.istiod.journal()[-TAIL:]:
        print('journal:', str({k: v for k, v in record.items() if not k.endswith('_hex')})[:400], file=sys.stderr)


@pytest.fixture
def node(make_node):
    """A node whose agentd is not started yet."""
    return make_node()


@pytest.fixture
def pair(node):
    """A client and a server pod of different service accounts with their resources, agentd running."""
    return start_pair(node)


def start_pair(node, api_type='GRPC', envoys=True, **pods):
    server, client = (node.pod(name, sa=f'{name}-sa', **pods) for name in ('server', 'client'))
    node.istiod.set(client.id, **mesh.client(server, api_type))
    node.istiod.set(server.id, **mesh.server([client], api_type))
    node.agentd.start()
    server.start_app(mesh.APP)
    if envoys:
        for pod in (server, client):
            pod.start_envoy()
        for pod in (server, client):
            pod.wait_ready()
        run.wait_for('the first answer', lambda: client.netns.http(mesh.OUTBOUND)[0] == 200)
    return client, server
