"""What takes the place of an agentd, or of its worker, while pods go on."""
import contextlib
import os
import signal

from .node import READY, Agentd, Said
from .run import wait_for


def upgrade(node):
    said = Said(node.agentd)
    node.agentd.process.send(signal.SIGUSR2)
    said.wait(READY)


def hand_over(node):
    old = node.agentd
    name = f'agentd{int(old.dir.name.removeprefix("agentd") or 1) + 1}'
    node.agentd = new = Agentd(node.dir / name, node.cgroup(name), node.istiod)
    new.run, new.manifests, new.settings, new.plane = old.run, old.manifests, old.settings, old.plane
    new.flags = [*(flag for flag in old.flags if flag != '--take-over'), '--take-over']
    new.start()
    assert old.process.wait() == 0


def kill_worker(node):
    pid = node.agentd.worker_pid()
    os.kill(pid, 9)
    wait_for('the next worker', lambda: other_than(node, pid))


def kill_any_worker(node):
    with contextlib.suppress(LookupError, ProcessLookupError):
        os.kill(node.agentd.worker_pid(), 9)


def other_than(node, pid):
    try:
        return node.agentd.worker_pid() != pid
    except LookupError:
        return False
