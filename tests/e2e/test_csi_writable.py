"""A volume that containers can write in: refused from now on; and what one that runs so can do.

With runc 1.2 and newer a container's mount is writable if the pod leaves readOnly out, whatever the driver has mounted
(kubelet-csi.md 3b). WRITABLE is what such a runtime does.
"""
import sys

import pytest

from . import clients
from .csi import VOLUME, CsiNode
from .run import Process, sh, wait_for

WORDS = "the volume of agentd.node.mesh needs readOnly: true: without it the pod's containers could write in it"
WRITABLE = 'mkdir -p "$1" && mount --bind "$0" "$1" && mount -o remount,bind,rw,suid,dev,exec "$1"'
FULL_MIB = 3
EXCHANGE = '''
import itertools, os, sys
os.chdir(sys.argv[1])
print('begins', flush=True)
for name in itertools.cycle(('socket', '.socket.new', 'XDS', '.XDS.new', 'root-cert.pem', '.root-cert.pem.new')):
    try:
        os.symlink(sys.argv[2], 'bait')
        os.rename('bait', name)
        os.unlink(name)
    except OSError:
        pass
'''


@pytest.fixture
def node(make_node):
    return make_node(kind=CsiNode).start()


def container(node, pod):
    """The pod's volume as its container has it."""
    at = node.dir / f'{pod.name}.container'
    sh(*node.inside('sh', '-c', WRITABLE, pod.target, at))
    return node.seen(at)


def problems(node):
    return '\n'.join(node.agentd.ctl('status')['problems'])


def wait_for_text(node, words, *command):
    wait_for(f'agentctl {" ".join(command)} to say it', lambda: words in ' '.join(node.agentd.ctl_text(*command)[1].split()))


def test_a_first_publish_without_the_word(node):
    pod = node.csi_pod('web', created=False)
    pod.spec['volumes'][0]['read_only'] = False
    pod.create()
    wait_for('it to be refused', lambda: node.kubelet.published(pod, 'INVALID_ARGUMENT'))
    assert node.kubelet.published(pod, 'INVALID_ARGUMENT')[0]['text'] == WORDS
    wait_for_text(node, WORDS, 'status')
    assert not node.mounts() and not node.kubelet.published(pod)
    node.csi_pod('reads').wait_running()
    assert not problems(node)


def test_one_that_an_earlier_agentd_took(node):
    """It runs on, is named, and however it exchanges names nothing outside of its directory changes."""
    pod, victim = node.csi_pod('web', created=False), node.dir / 'victim'
    pod.mount.mkdir(parents=True, mode=0o755)  # as an agentd before this rule made it: no file system of its own
    pod.create()
    pod.sandbox()
    assert node.mounts() == [str(pod.target)] and not node.mounts(node.agentd.run / 'pods')
    node.kubelet.process.kill()
    assert node.call(pod.publish(readonly=False))[0]['code'] == 'OK'
    assert f'volume {VOLUME} of {pod.label}: {WORDS}; it runs on' in problems(node)
    inside = container(node, pod)
    victim.write_text('of the node')
    victim.chmod(0o600)
    attacker = Process(node.inside(sys.executable, '-c', EXCHANGE, inside, victim), pod.dir / 'attacker.log', node.cgroup('attacker'))
    wait_for('it to begin', lambda: 'begins' in attacker.tail())
    for _ in range(3):
        node.agentd.kill()
        node.agentd.start()
        assert node.call(pod.publish(readonly=False))[0]['code'] == 'OK'
        wait_for_text(node, 'is gone and not made again: containers may write', 'pods', pod.label)
        assert victim.stat().st_mode & 0o7777 == 0o600 and victim.read_text() == 'of the node'
    attacker.kill()
    node.agentd.kill()
    node.agentd.start()  # and makes the sockets again
    wait_for('it to be served', lambda: 'default' in pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default']))
    sh(*node.inside('umount', node.dir / 'web.container'))
    pod.delete()
    node.kubelet.start()
    node.wait_gone([pod])
    wait_for('nothing to be left', lambda: node.clean() is True)


def test_a_pod_that_writes_until_nothing_is_left(node):
    """Of its own file system: another pod begins and is served meanwhile, and all of it goes."""
    pod = node.csi_pod('full').sandbox()
    inside = container(node, pod)
    with pytest.raises(OSError, match='No space'):
        with (inside / 'fill').open('wb') as f:
            while f.write(bytes(1 << 16)):
                f.flush()
    assert 0 < (inside / 'fill').stat().st_size < FULL_MIB << 20
    with pytest.raises(OSError, match='No space'):
        for i in range(100):
            (inside / f'{i}').symlink_to('/')
    other = node.csi_pod('other').sandbox()
    assert other.is_served() and pod.is_served()
    sh(*node.inside('umount', node.dir / 'full.container'))
    pod.delete()
    other.delete()
    node.wait_gone([pod, other])
    wait_for('nothing to be left', lambda: node.clean() is True)
