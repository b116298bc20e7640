"""No write of a pod's life is forgotten: no room, a broken disk, a read-only one, a quota; things that were removed.

Meanwhile the pod is not ready, and agentctl says why; afterwards, with the fault gone, all is right without a restart.

    what is written                  calls                                                        test
    directories                      mkdir, chmod                                                 test_a_pod_comes
    sockets                          bind, chmod, rename                                          test_a_pod_comes
    bootstrap                        create, write, chmod, rename                                 test_a_pod_comes
    root-cert.pem, again             create, write, chmod, rename                                 test_the_root_changes
    the network namespace's record   create, write, chmod, rename                                 test_a_pod_connects
    the certificate                  create, write, chmod, rename                                 test_a_certificate_is_kept
    a volume's pod                   create, write, chmod, rename                                 test_a_volume_is_published
    a volume's directory             mkdir                                                        test_a_volume_is_published
    their ends                       unlink, rmdir                                                test_a_pod_goes
"""
import contextlib
import os
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tests.istiod.ca import Authority

from . import clients, mesh
from .crowd import Crowd
from .csi import CsiNode
from .faults import ERRNOS, Faults
from .run import sh, wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
FILE = 'create', 'write', 'chmod', 'rename'


def each(*writes):
    """(what is written, how it fails): each with each under AGENTD_SOAK=1, each errno once and each write once else."""
    if SOAK:
        return [(w, code) for w in writes for code in ERRNOS]
    return [(w, ERRNOS[n % len(ERRNOS)]) for n, w in enumerate(writes)]


@pytest.fixture
def faults(node):
    return Faults(node)


def status(node):
    return node.agentd.ctl_text('status')


def wait_said(node, *words):
    """`status` is exit status 1, and agentctl says these."""
    def said():
        rc, text = status(node)
        text += node.agentd.ctl_text('pods')[1]
        return rc == 1 and all(w in text for w in words)
    wait_for(f'agentctl to say {words}', said)


def wait_well(node):
    wait_for('all to be well', lambda: status(node)[0] == 0 and node.agentd.ctl_text('pods')[0] == 0)


def problems(node, pod):
    shown, = node.agentd.ctl('pods', pod.uid)['pods']
    return shown['ready'], shown['problems']


def has_all(pod):
    got = pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default', 'ROOTCA'])
    assert got['default']['key']
    assert pod.bootstrap()['node']['id']
    wait_for('its root', (pod.mount / 'root-cert.pem').exists)  # SDS tells it before the broker has written it
    assert (pod.mount / 'root-cert.pem').read_text().strip() == pod.node.agentd.root_file.read_text().strip()
    return got


@contextlib.contextmanager
def one_agentd(node):
    """Nothing of it is started again."""
    before = node.agentd.process.pid, node.agentd.worker_pid()
    yield
    assert node.agentd.process.running() and (node.agentd.process.pid, node.agentd.worker_pid()) == before


def test_a_pod_comes(node, faults):
    node.agentd.start()
    wait_well(node)
    with one_agentd(node):
        for n, ((service, call, part), code) in enumerate(each(
                ('directory', 'mkdir', '/pods/'), ('sockets', 'bind', '/.XDS'), ('sockets', 'bind', '/.socket'),
                ('sockets', 'rename', '/mount/XDS'),
                *(('bootstrap', c, 'envoy-rev.json') for c in FILE))):
            with faults.on(call, code, part) as why:
                pod = node.pod(f'pod-{n}', sa='all')
                wait_said(node, pod.label, why)
                ready, said = problems(node, pod)
                assert not ready and why in said[service], said
                assert node.agentd.metric('agentd_pod_problem', f'pod="{pod.name}"', f'service="{service}"') == 1
                if service == 'sockets':
                    assert not (pod.mount / 'XDS').exists() or not (pod.mount / 'socket').exists()
            wait_well(node)
            has_all(pod)
            assert problems(node, pod) == (True, {})
            assert node.agentd.metric('agentd_pod_problem', f'pod="{pod.name}"') == 0
    assert len(node.istiod.issued()) == 1


def test_the_root_changes(node, faults):
    node.agentd.settings['pcds'] = True
    crowd = Crowd(node, 1, 1)
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    node.agentd.start()
    crowd.start().wait_served()
    wait_well(node)
    uid, = (p['uid'] for p in node.agentd.ctl('pods')['pods'])
    file = node.agentd.run / 'pods' / uid / 'mount/root-cert.pem'
    with one_agentd(node):
        for n, (call, code) in enumerate(each(*FILE)):
            new = Authority.new(f'root {n}').root.public_bytes(Encoding.PEM).decode()
            with faults.on(call, code, 'root-cert.pem') as why:
                node.istiod.set('all', anchors=[new])
                wait_said(node, why)
                shown, = node.agentd.ctl('pods')['pods']
                assert not shown['ready'] and why in shown['problems']['cert']
                assert new not in file.read_text()
            wait_well(node)
            assert new in file.read_text()
    crowd.stop()


def test_a_pod_connects(node, faults):
    """Its network namespace is learned then, and kept for the next agentd: the record is the broker's own."""
    node.agentd.start()
    with one_agentd(node):
        for n, (call, code) in enumerate(each(*FILE)):
            with faults.on(call, code, '/state/pod/') as why:
                pod = node.pod(f'pod-{n}', sa='all').wait_served()
                wait_well(node)
                has_all(pod)
                wait_said(node, why, 'network namespace')
            wait_well(node)
            assert 'netns_cookie' in (node.agentd.run / 'state/pod' / pod.uid).read_text()


def test_a_certificate_is_kept(node, faults):
    node.agentd.start()
    with one_agentd(node):
        for n, (call, code) in enumerate(each(*FILE), 1):
            with faults.on(call, code, '/state/cert/') as why:
                pod = node.pod(f'pod-{n}').wait_served()
                has_all(pod)
                wait_said(node, 'certificates are not stored', why)
            wait_well(node)
            assert len(list((node.agentd.run / 'state/cert').iterdir())) == n


def test_a_pod_goes(node, faults):
    node.agentd.start()
    with one_agentd(node):
        for n, ((call, part), code) in enumerate(each(('unlink', '/mount'), ('rmdir', '/pods/'), ('unlink', '/state/pod/'))):
            pod = node.pod(f'pod-{n}', sa='all').wait_served()
            wait_well(node)
            has_all(pod)
            with faults.on(call, code, part) as why:
                pod.remove_manifest()
                wait_said(node, "remove the pod's directory", why)
            wait_well(node)
            assert not pod.mount.parent.exists()
            assert not (node.agentd.run / 'state/pod' / pod.uid).exists()


def test_a_volume_is_published(make_node):
    node = make_node(kind=CsiNode, kubelet={'back_off_s': 0.05, 'sync_s': 3600})
    faults = Faults(node)
    node.start()
    with one_agentd(node):
        for n, (call, code) in enumerate(each(*FILE)):
            with faults.on(call, code, '/state/spec/') as why:
                pod = node.csi_pod(f'kept-{n}', sa='all').wait_running()
                wait_said(node, 'is not kept over a restart', why)
            wait_well(node)
            pod.delete()
            node.wait_gone([pod])
        for n, ((call, part), code) in enumerate(each(('mkdir', '/volumes/'), ('mount', '/run/pods/'), ('mkdir', '/mount'),
                                                      ('rename', 'envoy-rev.json'), ('bind', '/.socket'))):
            with faults.on(call, code, part) as why:
                pod = node.csi_pod(f'pod-{n}', sa='all')
                wait_said(node, pod.label, why)
            pod.wait_running()
            wait_well(node)
            pod.delete()
            node.wait_gone([pod])
        wait_for('nothing to be left', lambda: node.clean() is True)


def test_a_volume_goes(make_node):
    node = make_node(kind=CsiNode, kubelet={'back_off_s': 0.05, 'sync_s': 3600})
    faults = Faults(node)
    node.start()
    with one_agentd(node):
        for n, ((call, part), code) in enumerate(each(('rmdir', '/volumes/'), ('unlink', '/state/spec/'), ('rmdir', '/pods/'))):
            pod = node.csi_pod(f'pod-{n}', sa='all').wait_running()
            with faults.on(call, code, part) as why:
                pod.delete()
                wait_said(node, why)
            node.wait_gone([pod])
            wait_well(node)
        wait_for('nothing to be left', lambda: node.clean() is True)


@pytest.fixture
def small(node):
    """<run> is a file system of its own, of 2 MiB, where nobody else writes."""
    run = node.agentd.run
    run.mkdir(mode=0o711)
    sh('mount', '-t', 'tmpfs', '-o', 'size=2m,nr_inodes=200,mode=711', node.name, run)
    yield run
    subprocess.run(['umount', '-R', '-l', run], check=False)


def fill(run):
    with contextlib.suppress(OSError), open(run / 'full', 'wb', 0) as f:
        while True:
            f.write(b'x' * 4096)


def use_up(run):
    """Every name."""
    (run / 'names').mkdir()
    with contextlib.suppress(OSError):
        for i in range(1000):
            (run / 'names' / str(i)).touch()


def test_a_full_file_system(node, small):
    """The real thing: no block, then no inode."""
    node.agentd.start()
    with one_agentd(node):
        for how, what in (fill, 'full'), (use_up, 'names'):
            how(small)
            pod = node.pod(f'pod-{what}', sa='all')
            wait_said(node, pod.label, 'No space left on device')
            assert not problems(node, pod)[0]
            subprocess.run(['rm', '-rf', small / what], check=True)
            wait_well(node)
            has_all(pod)


def test_a_read_only_file_system(node, small):
    node.agentd.start()
    old = node.pod('old', sa='all').wait_served()
    wait_well(node)
    has_all(old)
    # Its first connection shows its address, with which its bootstrap is written once more.
    wait_for('its address', lambda: '127.0.0.1' not in old.bootstrap()['node']['id'])
    with one_agentd(node):
        sh('mount', '--bind', small / 'pods', small / 'pods')
        sh('mount', '-o', 'remount,bind,ro', small / 'pods')
        pod = node.pod('new', sa='all')
        wait_said(node, pod.label, 'Read-only file system')
        assert problems(node, old) == (True, {})
        sh('umount', small / 'pods')
        wait_well(node)
        has_all(pod)


def test_what_was_removed_comes_back(node):
    """By an administrator's rm, or a script that cleans up."""
    node.agentd.start()
    pod, other = (node.pod(name, sa='all').wait_served() for name in ('web', 'other'))
    wait_well(node)
    has_all(pod), has_all(other)

    def restored():
        return node.agentd.metric('agentd_pod_files_restored_total')
    with one_agentd(node):
        for names in ('socket',), ('XDS',), ('envoy-rev.json',), ('root-cert.pem',), ('',), None:
            before = restored()
            paths = [pod.mount / n for n in names] if names else [pod.mount.parent]
            for path in paths:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            wait_for('it to be back', lambda b=before: restored() > b)
            pod.wait_served()
            wait_for('its root', (pod.mount / 'root-cert.pem').exists)
            wait_well(node)
            has_all(pod), has_all(other)
        shutil.rmtree(node.agentd.run / 'pods')
        for each in pod, other:
            each.wait_served()
            wait_for('its root', (each.mount / 'root-cert.pem').exists)
            has_all(each)
        wait_well(node)
    assert 'was removed' in node.agentd.log.read_text()


def test_a_node_that_has_no_room(node):
    """--max-pods: who is refused is listed, and has its turn when another one goes."""
    node.agentd.flags += ['--max-pods', '2']
    node.agentd.start()
    pods = [node.pod(f'pod-{i}', sa='all') for i in range(2)]
    for pod in pods:
        pod.wait_served()
    wait_well(node)
    late = node.pod('late', sa='all')
    wait_said(node, late.label, 'there are 2 pods already (--max-pods)')
    assert 'max-pods' in problems(node, late)[1]['directory']
    with one_agentd(node):
        pods[0].remove_manifest()
        wait_well(node)
        has_all(late)


def test_a_kubelets_node_that_has_no_room(make_node):
    node = make_node(kind=CsiNode, kubelet={'back_off_s': 0.05, 'sync_s': 3600})
    node.agentd.flags += ['--max-pods', '1']
    node.start()
    first = node.csi_pod('first').wait_running()
    wait_well(node)
    late = node.csi_pod('late')
    wait_said(node, late.label, 'there are 1 pods already (--max-pods)')
    assert node.kubelet.published(late, code='RESOURCE_EXHAUSTED')
    first.delete()
    late.wait_running()
    wait_well(node)
