"""Whether the kubelet knows agentd: after a reboot, after either of the two was away, and what the pages say of it.

The kubelet looks at an entry of its registry when it appears and when it starts itself.  What answers nobody then is
ignored, or tried again with a back-off of up to two minutes that belongs to the entry's name.
"""
import os
import signal

import pytest

from .csi import DRIVER, CsiNode, entries
from .run import wait_for

NEVER_AGAIN = {'entry_back_off_s': 600}  # a name that failed once


@pytest.fixture
def node(make_node):
    return make_node(kind=CsiNode, kubelet=NEVER_AGAIN)


def wait_known(node, registrations=1):
    """By the kubelet, and said so by agentd."""
    node.kubelet.wait_registered()
    known = wait_for('the registration', lambda: node.kubelet.journal('registered', driver=DRIVER)[registrations - 1:])
    refused = [r['entry'] for what in ('registry', 'not-registered') for r in node.kubelet.journal(what)]
    assert known[-1]['entry'] not in refused, 'it came of the first look at a new name, whatever the back-off of another'
    wait_for('agentd to say so', lambda: node.agentd.ctl_text('ready')[0] == 0)
    assert node.agentd.ctl('status')['kubelet']['registered'] is True
    assert node.agentd.metric('agentd_csi_registered') == 1


def expect_unknown(node):
    """Nothing says that all is well: neither the exit status, nor the page, nor the metric."""
    wait_for('agentd to be there', lambda: node.agentd.ctl('status')['settled'])
    for command in 'ready', 'status':
        code, text = node.agentd.ctl_text(command)
        assert code == 1 and 'the kubelet has not registered agentd' in text
    assert node.agentd.ctl('status')['kubelet']['registered'] is False
    assert node.agentd.metric('agentd_csi_registered') == 0


def test_after_a_reboot_the_kubelet_looked_first(node):
    """The link is on disk, nothing is behind it yet, and the kubelet does not look at that name a second time."""
    node.start()
    pod = node.csi_pod('web').wait_running()
    node.reboot()
    assert entries(node), 'a reboot leaves the link where it is'
    node.kubelet.start()
    wait_for('the kubelet to ignore it', lambda: node.kubelet.journal('registry'))
    node.agentd.start()
    wait_known(node, 2)
    pod.wait_running()
    assert len(entries(node)) == 1


def test_the_kubelet_came_back_while_agentd_was_away(node):
    """It was refused, and waits before it tries that name again: another one is tried at once."""
    node.start()
    wait_known(node)
    node.agentd.kill()
    node.kubelet.restart()
    wait_for('the kubelet to be refused', lambda: node.kubelet.journal('not-registered'))
    node.agentd.start()
    wait_known(node, 2)
    node.csi_pod('web').wait_running()


def test_agentd_came_back_while_the_kubelet_was_away(node):
    node.start()
    wait_known(node)
    node.kubelet.process.kill()
    node.agentd.kill()
    node.agentd.start()
    expect_unknown(node)
    node.kubelet.start()
    wait_known(node, 2)
    node.csi_pod('web').wait_running()


def test_without_a_kubelet_nothing_is_well(node):
    node.agentd.start()
    expect_unknown(node)
    before = entries(node)
    wait_for('another name to be tried', lambda: entries(node) not in ([], before))
    node.kubelet.start()
    wait_known(node)


def test_what_the_kubelet_said_outlives_the_worker_and_an_upgrade(node):
    node.start()
    wait_known(node)
    before = entries(node)
    for victim, what in (node.agentd.worker_pid(), signal.SIGKILL), (node.agentd.process.pid, signal.SIGUSR2):
        worker = node.agentd.worker_pid()
        os.kill(victim, what)
        wait_for('the next worker', lambda: [p for p in node.agentd.cgroup.pids() if p not in (node.agentd.process.pid, worker)])
        wait_for('agentd to be ready', lambda: node.agentd.ctl_text('ready')[0] == 0)
        assert node.agentd.ctl('status')['kubelet']['registered'] is True
    assert entries(node) == before and len(node.kubelet.journal('registered')) == 1
