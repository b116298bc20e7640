"""Each thing that can be slow, one at a time: pods are served, somebody says what is wrong, SIGTERM ends agentd."""
import contextlib
import os
import signal
import socket
import struct

import pytest

from .conftest import start_served
from .hostile import LINK, Broker, memfd
from .run import wait_for
from .test_metrics import Port


def serves(node):
    """Who is there, and who comes."""
    late = node.pod('late')
    late.wait_served()
    assert all(pod.is_served() for pod in node.pods)


def says(node, what):
    wait_for(f'status to say "{what}"', lambda: what in node.agentd.ctl_text('status')[1])
    assert node.agentd.ctl_text('status')[0] == 1


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_a_broker_that_hangs(node):
    port, silent = Port(node), 'the broker has not answered for '
    one, = start_served(node, 'one')
    worker = node.agentd.worker_pid()
    with stopped(node.agentd.process.pid):
        says(node, silent)
        assert one.is_served()
        status, text = node.agentd.ctl_text('ready')
        assert status == 1 and silent in text
        status, _, text = port.ask('/healthz')
        assert status == 503 and silent in text
        assert node.agentd.metric('agentd_broker_silent_seconds') >= 8
    wait_for('the broker to answer', lambda: node.agentd.ctl_text('status')[0] == 0)
    assert port.healthy() and node.agentd.ctl_text('ready')[0] == 0
    assert node.agentd.worker_pid() == worker  # it answered, and whom it could not hear is not blamed
    assert silent in node.agentd.log.read_text()
    assert 'the broker answers again' in node.agentd.log.read_text()
    serves(node)
    assert node.agentd.stop() == 0


def test_a_worker_that_hangs_is_replaced(node):
    """Without a service manager, too."""
    start_served(node, 'one')
    worker = node.agentd.worker_pid()
    with stopped(worker):
        status, text = node.agentd.ctl_text('status')
        assert status and 'did not answer' in text or node.agentd.worker_pid() != worker
        wait_for('another worker', lambda: node.agentd.worker_pid() != worker)
    assert 'the worker does not answer and is killed' in node.agentd.log.read_text()
    wait_for('its answer', lambda: node.agentd.ctl_text('status')[0] == 0)
    serves(node)
    assert node.agentd.stop() == 0


def test_a_worker_that_hangs_does_not_hold_the_end_up(node):
    start_served(node, 'one')
    with stopped(node.agentd.worker_pid()):
        assert node.agentd.stop() == 128 + signal.SIGKILL
    assert 'the worker did not end in time and is killed' in node.agentd.log.read_text()


class Unread:
    """The standard error of the whole agentd, which nobody reads at the moment."""

    def __init__(self, node):
        path = node.dir / 'unread'
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        node.agentd.around = ['sh', '-c', f'exec "$0" "$@" 2>{path}']
        node.agentd.tells = False
        self.fill()

    def fill(self):
        for size in 4096, 1:
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(self._fd, b'.' * size)

    def read(self):
        text = b''
        with contextlib.suppress(BlockingIOError):
            while True:
                text += os.read(self._fd, 1 << 16)
        return text.decode(errors='replace')


def test_a_log_that_nobody_reads(node):
    """A pipe to the container's runtime, full since before agentd began."""
    log = Unread(node)
    start_served(node, 'one')
    says(node, 'nobody reads the log')
    serves(node)
    for program in 'agentd', 'agentd-worker':
        wait_for('lines to be counted', lambda p=program: node.agentd.metric('agentd_log_dropped_total', f'program="{p}"'))
    worker = node.agentd.worker_pid()
    os.kill(worker, signal.SIGKILL)  # which the broker wants to say
    wait_for('another worker', lambda: node.agentd.worker_pid() != worker)
    assert all(wait_for('service', lambda p=pod: p.is_served()) for pod in node.pods)
    heard = [log.read().lstrip('.')]  # what was there first; the broker may have said more while it was read
    wait_for('both to say what was lost', lambda: heard.append(log.read()) or
             ''.join(heard).count(' dropped: nobody read this log') >= 2)
    assert all(line.startswith('time=') for line in ''.join(heard).splitlines())
    wait_for('no problem', lambda: node.agentd.ctl_text('status')[0] == 0)
    log.fill()
    assert node.agentd.stop() == 0


def test_a_service_manager_that_does_not_read(node):
    path = node.dir / 'notify'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        manager.bind(str(path))
        other.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                other.sendto(b'.', str(path))
        node.agentd.around = ['env', f'NOTIFY_SOCKET={path}']
        start_served(node, 'one', 'two', 'three')
        says(node, 'the service manager does not read')
        serves(node)
        manager.setblocking(False)
        heard = []

        def read():
            with contextlib.suppress(BlockingIOError):
                while True:
                    heard.append(manager.recv(4096))
            return any(text.startswith(b'READY=1') for text in heard)
        wait_for('all to be told', read)
        order = [text for text in heard if text != b'.']
        assert sum(b'FDSTORE=1' in text for text in order) >= 2 * len(node.pods)
        wait_for('no problem', lambda: node.agentd.ctl_text('status')[0] == 0)
        assert node.agentd.stop() == 0


def lingering():
    """A TCP socket whose close lasts for an hour, and the end that does not read."""
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        listener.listen()
        ours = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    ours.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            ours.send(b'.' * 65536)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 3600))
    return ours.detach(), peer


@pytest.mark.parametrize('op', ['WRITE', 'STATE_PUT', 'PEER_OF', 'CALLER', 'REDIRECT_SET', 'REDIRECT_EXPLAIN'])
def test_a_descriptor_that_does_not_close(node, op):
    """By a worker that somebody took over."""
    broker, pod = Broker(node), node.pod('one')
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(broker.one_session())
        session.works('POD_ADD', pod.uid)
        for _ in range(5):
            fd, peer = lingering()
            stack.enter_context(peer)
            with stopped(broker.process.pid):  # so that what it gets is the last copy
                request = session.send(op, pod.uid, fds=[fd])
                os.close(fd)
            assert session.reply(request)[0].code
        assert session.works('LOG', arg=2) is None
        good = memfd()
        session.works('WRITE', pod.uid, kind=LINK['LINK_FILE_BOOTSTRAP'], fds=[good])
        os.close(good)
        wait_for('those who close them to end', lambda: len(node.agentd.cgroup.pids()) == 2)
