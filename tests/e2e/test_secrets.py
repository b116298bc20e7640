"""A key or token is in memory that is locked and in no dump; and in none when its pod is gone.

Whole processes are searched, the worker's and the broker's, for each 24 bytes of a secret.
"""
import json
import re
from pathlib import Path

import pytest

from . import clients, memory, mesh
from .csi import CsiNode
from .run import wait_for


def pids(node):
    return [node.agentd.worker_pid(), node.agentd.process.pid]


def key_of(pod):
    return pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])['default']['key']


def envoys(node, *pods):
    for pod in pods:
        node.istiod.set(pod.id, **mesh.server([]))
        pod.start_envoy()
    for pod in pods:
        pod.wait_ready()


def certificates(node):
    return len(node.agentd.ctl('certs')['certificates'])


def kept(node, pod):
    """The token that the kubelet gave, as agentd keeps it."""
    file, = (f for f in (node.seen(node.agentd.run) / 'state/spec').iterdir() if pod.uid in f.read_text())
    return json.loads(file.read_text())['token']


def in_files(folder, secrets):
    texts = [f.read_bytes().replace(b'\n', b'') for f in folder.rglob('*') if f.is_file()]
    return any(secret in text for text in texts for secret in secrets.values())


def watched(node, secrets):
    """While its pod lives, the key is in locked memory alone, and the token, too."""
    worker, broker = pids(node)
    found = memory.found_in([worker, broker], secrets)
    assert {what.partition('[')[0] for what, pid, _, locked in found if pid == worker and locked} >= {'key', 'token'}
    assert not [x for x in found if x[1] == broker or not x[3]]


def test_nothing_is_sent_after_the_token(make_node):
    """What encrypts for istiod holds what it sent last: a pod without an Envoy sends its token, and then nothing."""
    node = make_node(mode='release')
    pod = node.pod('quiet')
    node.agentd.start()
    pod.wait_served()
    wait_for('its certificate', lambda: certificates(node) == 1)
    worker, _ = pids(node)
    found = memory.found_in([worker], memory.token(pod.tokens[-1]))
    assert found and not [x for x in found if not x[3]]


def test_of_a_pod_of_a_manifest(make_node):
    node = make_node(mode='release')  # a sanitizer keeps what was freed
    node.agentd.settings['certificate_linger_s'] = 1
    gone, other = node.pod('gone'), node.pod('other')
    node.agentd.start()
    envoys(node, gone, other)
    secrets = {**memory.key(key_of(gone)), **memory.token(gone.tokens[-1])}
    watched(node, secrets)
    assert in_files(node.agentd.run / 'state', secrets)
    gone.remove_manifest()
    wait_for('the certificate to be forgotten', lambda: certificates(node) == 1)
    assert not memory.found_in(pids(node), secrets)
    wait_for('its file to go', lambda: not in_files(node.agentd.run / 'state', secrets))
    for pid in pids(node):
        assert re.search(r'^Max core file size +0 ', Path(f'/proc/{pid}/limits').read_text(), re.M)


def test_of_a_pod_of_the_kubelet(make_node):
    node = make_node(kind=CsiNode, mode='release')
    node.agentd.settings['certificate_linger_s'] = 1
    node.start()
    gone, other = (node.csi_pod(name, sa=name) for name in ('gone', 'other'))
    for pod in (gone, other):
        pod.sandbox()
    envoys(node, gone, other)
    secrets = {**memory.key(key_of(gone)), **memory.token(kept(node, gone))}
    watched(node, secrets)
    gone.delete()
    node.wait_gone([gone])
    wait_for('the certificate to be forgotten', lambda: certificates(node) == 1)
    assert not memory.found_in(pids(node), secrets)


@pytest.mark.parametrize('around,lines', [
    (['prlimit', '--memlock=0', 'setpriv', '--bounding-set=-sys_resource,-ipc_lock'], 1), ([], 0)], ids=['nothing', 'enough'])
def test_what_cannot_be_locked_is_said_once(make_node, around, lines):
    """And agentd works all the same."""
    node = make_node(mode='release')
    node.agentd.around = around
    one, two = node.pod('one'), node.pod('two')
    node.agentd.start()
    for pod in (one, two):
        pod.wait_served()
        assert key_of(pod)
    assert len(re.findall(r'level=warn .*may be swapped out', node.agentd.log.read_text())) == lines


def test_the_limit_is_raised(node):
    """A container's runtime may give 64 KiB: sixteen secrets.  Without CAP_SYS_RESOURCE there is the hard limit."""
    node.agentd.around = ['prlimit', '--memlock=65536:1048576']
    pod = node.pod('one')
    node.agentd.start()
    pod.wait_served()
    limits = Path(f'/proc/{node.agentd.worker_pid()}/limits').read_text()
    assert re.search(r'^Max locked memory +(67108864 +67108864|1048576 +1048576) ', limits, re.M), limits
