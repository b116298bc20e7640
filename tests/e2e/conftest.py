"""Fixtures.  Whatever a test gets is its own and goes with it, also when it fails.

What a failed test leaves to read is kept in build/failed/FILE/TEST: logs, the control plane's journal, agentctl's pages.
"""
import os
import shutil
import signal
import subprocess
import sys

import pytest

# Before grpc is imported: cast.py forks beside it, and its own threads must not begin again in such a child.
os.environ.setdefault('GRPC_ENABLE_FORK_SUPPORT', '0')

from . import mesh, netns, run  # noqa: E402
from .node import BUILD, Node  # noqa: E402

TAIL = 60
FAILED = BUILD / 'failed'
PAGES = 'status', 'pods', 'certs', 'xds', 'redirect'
# Files that stay in the network namespace in which pytest was started, and why; one at a time on a machine.
FIRST_NETNS = {
    'test_redirect_tools': 'eBPF knows the first namespace by another way than one that agentd was started in',
    'test_deb': 'apt downloads what it installs',
    'test_builders': 'apt downloads a Debian',
}
measured = []  # what tests found and do not judge
kept = []  # folders of failed tests


def pytest_configure(config):
    if os.geteuid() != 0:
        pytest.exit('the end-to-end tests make network namespaces and cgroups: root is needed', 2)
    # SIGTERM unwinds like Ctrl-C, so that everything is removed.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))


def pytest_terminal_summary(terminalreporter):
    for line in measured:
        terminalreporter.write_line(f'measured: {line}')
    for folder in kept:
        terminalreporter.write_line(f'kept: {folder}')


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


@pytest.fixture(scope='module', autouse=True)
def network(request):
    """The network namespace of a file: what runs beside it has 127.0.0.1, too, and the same ports."""
    shutil.rmtree(FAILED / request.path.stem, ignore_errors=True)
    with run.alone('/proc/self/ns/net') if request.path.stem in FIRST_NETNS else netns.own():
        yield


@pytest.fixture
def make_node(this_run, request):
    """Makes nodes.  At the end no log may hold a secret or a sanitizer's complaint."""
    nodes = []

    def make(kind=Node, **kw):
        nodes.append(kind(*this_run, **kw))
        return nodes[-1]
    yield make
    try:
        if _failed(request):
            for node in nodes:
                ask_pages(node)
        for node in nodes:
            node.remove()
        for node in nodes:
            check(node)
    except BaseException:
        request.node.failed = True
        raise
    finally:
        if _failed(request):
            for n, node in enumerate(nodes, 1):
                show(node)
                keep(node, request, str(n) if len(nodes) > 1 else '')
        for node in nodes:
            shutil.rmtree(node.dir, ignore_errors=True)


def _failed(request):
    return getattr(request.node, 'failed', False)


def check(node):
    """Once all has ended."""
    assert not node.agentd.complaints()
    assert not node.leaks()
    assert not node.istiod.strangers()


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


def ask_pages(node):
    """While agentd is there to answer."""
    folder = node.dir / 'pages'
    folder.mkdir()
    for name in PAGES:
        try:
            status, text = node.agentd.ctl_text(name)
        except (OSError, RuntimeError, subprocess.SubprocessError) as e:
            (folder / name).write_text(f'{type(e).__name__}: {e}\n')
            break  # it would not answer the next one either
        (folder / name).write_text(f'{text}exit status {status}\n')


def keep(node, request, below):
    """All that can be read, in whole, by root alone: it may hold what the test is there to find."""
    folder = FAILED / request.path.stem / request.node.name.replace('/', '-') / below
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in [*node.logs(), *node.dir.rglob('*.jsonl'), *node.dir.glob('pages/*')]:
        to = folder / file.relative_to(node.dir)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to)
    kept.append(os.path.relpath(folder))


@pytest.fixture
def node(make_node):
    """A node whose agentd is not started yet."""
    return make_node()


@pytest.fixture
def pair(node):
    """A client and a server pod of different service accounts with their resources, agentd running."""
    return start_pair(node)


def start_served(node, *names):
    """Pods without Envoys that have been served once: their namespaces are known."""
    pods = [node.pod(name) for name in names]
    node.agentd.start()
    for pod in pods:
        pod.wait_served()
        assert pod.is_served()
    return pods


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
