"""A Kubernetes node: a mount namespace, a kubelet (tests/kubelet), agentd as its CSI driver, pods by CSI volume.

All mounts are made in a mount namespace of the node's own, which one process holds: what agentd mounts is never seen
by the machine.  The kubelet's directory is a file system of its own that outlives that namespace, as a disk does;
there it is a shared mount, and so is <run>, as a DaemonSet's Bidirectional mounts are.
"""
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tests.istiod import journal
from tests.kubelet import podspec, requests, runtime
from tests.kubelet.pods import cgroup_of
from tests.kubelet.server import main as run_kubelet

from .forked import Forked
from .netns import Netns
from .node import Agentd, Node
from .pod import HERE, Pod
from .run import TOP, Process, cgroup_root, remove_cgroup, sh, wait_for

DRIVER, VOLUME = 'agentd.node.mesh', 'mesh'
_POD_CGROUP = re.compile(r'(^|-)pod[0-9a-f]{8}')
FAST = 0.1  # of the kubelet's times
_HOLDER = ('for d in "$0" "$1"; do mount --bind "$d" "$d" && mount --make-shared "$d" || exit 1; done; '
           'echo held; exec sleep infinity')


def entries(node):
    """The driver's links in the kubelet's registry, of which there is one."""
    return sorted(node.kubelet.root.glob(f'plugins_registry/{DRIVER}*-reg.sock'))


class Kubelet:
    """The stand-in, as a process; what it is to do is in its directory, so it may be away meanwhile."""

    def __init__(self, node, driver='cgroupfs', scale=FAST, **config):
        self._node, self.dir = node, node.dir / 'kubelet.state'
        self.root, self.log = node.dir / 'kubelet', node.dir / 'kubelet.log'
        self.tree = cgroup_root() / node.cgroup_name / ('kubepods.slice' if driver == 'systemd' else 'kubepods')
        self.config = {'root': str(self.root), 'cgroups': str(self.tree), 'issuer': str(node.istiod.dir),
                       'cgroup_driver': driver, 'scale': scale, **config}
        self._cgroup, self.process = node.cgroup('kubelet'), None
        (self.dir / 'api').mkdir(parents=True)
        self.root.mkdir()
        sh('mount', '-t', 'tmpfs', '-o', 'mode=755', node.name, self.root)
        for name in ('pods', 'plugins_registry'):
            (self.root / name).mkdir(mode=0o750)
        for qos in ('guaranteed', 'burstable', 'besteffort'):
            cgroup_of(self.tree, driver, qos, 'any').parent.mkdir(exist_ok=True)

    def start(self):
        (self.dir / 'config.json').write_text(json.dumps(self.config))
        (self.dir / 'state.json').unlink(missing_ok=True)  # an earlier one's
        self.process = Forked(run_kubelet, [self.dir], self.log, self._cgroup, mounts=self._node.mount_namespace())
        return self

    def wait_registered(self):
        wait_for('the kubelet to know the driver', lambda: DRIVER in self.state()['drivers'])

    def state(self):
        if not self.process.running():
            raise RuntimeError(f'the kubelet ended:\n{self.process.tail()}')
        return json.loads((self.dir / 'state.json').read_text())

    def journal(self, event=None, **match):
        return journal.read(self.dir, event, **match)

    def published(self, pod, code='OK'):
        """Calls for this pod's volume that were answered so."""
        return self.journal('NodePublishVolume', uid=pod.uid, code=code)

    def restart(self):
        """Killed, as its end is nothing that it prepares for."""
        self.process.kill()
        return self.start()

    def network(self, ready):
        """Without it no pod's cgroup is made."""
        file = self.dir / 'network-not-ready'
        file.unlink(missing_ok=True) if ready else file.touch()

    def forget_sandboxes(self):
        shutil.rmtree(self.dir / 'runtime', ignore_errors=True)


class CsiNode(Node):
    def __init__(self, root, cgroup, kubelet=None, **kw):
        super().__init__(root, cgroup, **kw)
        (self.dir / 'run').mkdir(mode=0o711)
        self.kubelet = Kubelet(self, **(kubelet or {}))
        self._hold()
        self.agentd.manifests, self._releases = None, 0
        self.agentd.settings['publish_wait_ms'] = 2000
        self.agentd.flags += ['--kubelet-root', self.kubelet.root,
                              '--kubepods', str(self.kubelet.tree.relative_to(cgroup_root()))]

    def _hold(self):
        """The node's mount namespace, until the node is booted again."""
        log = self.dir / 'holder.log'
        log.unlink(missing_ok=True)
        self.holder = Process(['unshare', '--mount', '--propagation', 'private', '/bin/sh', '-c', _HOLDER,
                               self.kubelet.root, self.dir / 'run'], log, self.cgroup_of('holder'))
        wait_for('the mount namespace', lambda: 'held' in log.read_text())
        self.agentd.around = self.container()

    def cgroup_of(self, name):
        """The same one again after a reboot."""
        with contextlib.suppress(FileNotFoundError):
            remove_cgroup(cgroup_root() / self.cgroup_name / name)
        return self.cgroup(name)

    def mount_namespace(self):
        return f'/proc/{self.holder.pid}/ns/mnt'

    def inside(self, *argv, net=None):
        """argv that runs in the node's mount namespace."""
        enter = ['nsenter', f'--mount={self.mount_namespace()}', *([f'--net={net}'] if net else [])]
        return [*enter, 'env', '-C', str(TOP), *map(str, argv)]  # who enters one is in its root directory

    def container(self):
        """As the chart has agentd: a mount namespace of its own, whose mounts of the two directories are Bidirectional."""
        return self.inside('unshare', '--mount', '--propagation', 'unchanged')

    def start(self):
        self.kubelet.start()
        wait_for('the kubelet', self.kubelet.state)
        self.agentd.start()
        self.kubelet.wait_registered()
        return self

    def capture(self, below=''):
        self.bpffs.mkdir()
        sh('mount', '-t', 'bpf', 'bpf', self.bpffs)
        self.holder.kill()  # anew, so that it has that mount, too
        self._hold()
        self.agentd.flags += ['--redirect', '--bpffs', self.bpffs]
        self.agentd.settings['redirect'] = 'ebpf'
        return self

    def csi_pod(self, name, **kw):
        pod = CsiPod(self, name, **kw)
        self.pods.append(pod)
        return pod

    def reboot(self):
        """Everything that is not on a disk is gone: processes, mounts, <run>, cgroups of pods."""
        self.kubelet.process.kill()
        self.agentd.kill()
        for folder in self._pods_cgroups():
            remove_cgroup(folder)
        self.holder.kill()
        self.kubelet.forget_sandboxes()
        shutil.rmtree(self.dir / 'run')
        (self.dir / 'run').mkdir(mode=0o711)
        self._hold()

    def roll_out(self):
        """A DaemonSet's surge: the new container is started beside the old one."""
        old, self._releases = self.agentd, self._releases + 1
        name = f'agentd{self._releases}'
        new = self.agentd = Agentd(self.dir / name, self.cgroup(name), self.istiod, old.mode)
        new.run, new.manifests, new.settings, new.plane = old.run, None, old.settings, old.plane
        new.around = self.container()
        new.flags = [f for f in old.flags if f != '--take-over'] + ['--take-over']
        new.start()
        assert old.process.wait() == 0 and not old.complaints()

    # What is there
    def mount_ids(self, below=None):
        """(mount point, the kernel's number of it) of all below the kubelet's directory, in the node's namespace."""
        lines = [line.split() for line in Path(f'/proc/{self.holder.pid}/mountinfo').read_text().splitlines()]
        return sorted((line[4], line[0]) for line in lines if line[4].startswith(f'{below or self.kubelet.root}/'))

    def mounts(self, below=None):
        """Each mount's point: one that is mounted twice is there twice."""
        return [point for point, _ in self.mount_ids(below)]

    def seen(self, path):
        """A path as the node's namespace has it, for this process."""
        return Path(f'/proc/{self.holder.pid}/root{path}')

    def left_behind(self):
        """All that a pod which is gone must not leave, by name."""
        run = self.seen(self.agentd.run)
        return {'mounts': self.mounts(), 'file systems': self.mounts(self.agentd.run / 'pods'),
                'registry': sorted(set((self.kubelet.root / 'plugins_registry').iterdir()) - set(entries(self))),
                'volumes': sorted(p.name for p in (self.kubelet.root / 'pods').iterdir()),
                'directories': sorted(p.name for p in (run / 'pods').iterdir()),
                **{kind: sorted(p.name for p in (run / 'state' / kind).iterdir()) for kind in ('spec', 'pod', 'rules')},
                'cgroups': sorted(p.name for p in self._pods_cgroups())}

    def clean(self):
        """Nothing is there of any pod."""
        return not any(self.left_behind().values()) or self.left_behind()

    def _pods_cgroups(self):
        return [p for p in self.kubelet.tree.rglob('*') if p.is_dir() and _POD_CGROUP.search(p.name)]

    def wait_gone(self, pods):
        """The kubelet is through with these, which it knew."""
        uids = {p.uid for p in pods}
        wait_for(f'{len(uids)} pods to be gone', lambda: not uids & self.kubelet.state()['pods'].keys())

    def call(self, *calls, **how):
        """[(method, fields), ...] at the driver, not by the kubelet: [{code, details}, ...]."""
        return self.begin(*calls, **how).finish()

    def begin(self, *calls, socket=None, around=(), uid=0, parallel=1, timeout_s=60):
        return Calls([*self.inside(), *around, sys.executable, '-m', 'tests.kubelet', 'call',
                      socket or self.agentd.run / 'csi.sock', '--parallel', parallel, '--uid', uid],
                     [(m, f, timeout_s) for m, f in calls])

    def remove(self):
        with contextlib.ExitStack() as stack:
            stack.callback(sh, 'umount', '--lazy', self.kubelet.root)
            stack.callback(super().remove)
            if self.kubelet.process:
                stack.callback(self.kubelet.process.kill)


class Calls:
    """Under way.  What they come to goes into files: a pipe that nobody reads meanwhile would be full."""

    def __init__(self, argv, calls):
        self._out, self._err = tempfile.TemporaryFile('w+'), tempfile.TemporaryFile('w+')
        self._process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.PIPE, stdout=self._out, stderr=self._err,
                                         text=True, cwd=TOP)
        self._process.stdin.write(json.dumps(calls))
        self._process.stdin.close()

    def running(self):
        return self._process.poll() is None

    def finish(self):
        with self._out, self._err:
            status = self._process.wait()
            for f in (self._out, self._err):
                f.seek(0)
            if status:
                raise RuntimeError(f'call: {self._err.read()[-2000:]}')
            return json.loads(self._out.read())


class _PodNetns(Netns):
    """A sandbox's; whoever enters it is in the node's mount namespace, too."""

    def __init__(self, node, pid):
        self.name, self.path = str(pid), f'/proc/{pid}/ns/net'
        self._node, self._pool = node, None
        self.ip('link', 'set', 'lo', 'up')

    def command(self, *argv):
        return self._node.inside(*argv, net=self.path)

    def remove(self):
        if self._pool:
            self._pool.shutdown(cancel_futures=True)


class _ContainerCgroup:
    """One more container of the pod, as containerd makes it."""

    def __init__(self, pod_cgroup, driver):
        name = uuid.uuid4().hex * 2
        self.path = pod_cgroup / (f'cri-containerd-{name}.scope' if driver == 'systemd' else name)
        self.path.mkdir()

    def below_root(self):
        return str(self.path.relative_to(cgroup_root()))


class CsiPod(Pod):
    """Created at the API; sandbox() waits until the kubelet has made its sandbox, and connects that to the network."""

    def __init__(self, node, name, sa=None, ns='demo', qos='besteffort', attributes=None, containers=(), created=True):
        self.node, self.name, self.ns, self.sa = node, name, ns, sa or name
        self.uid, self.id, self.label = str(uuid.uuid4()), f'{ns}.{name}', f'{ns}/{name}'
        self.dir = node.dir / self.id[:100]
        self.certs = self.dir / 'certs'
        self.certs.mkdir(parents=True)
        self.tokens, self.envoy, self.netns, self.cgroup, self._starts = [], None, None, None, 0
        self.api = node.kubelet.dir / 'api'
        self.spec = {'uid': self.uid, 'name': name, 'namespace': ns, 'service_account': self.sa, 'qos': qos, 'grace_s': 1,
                     'volumes': [{'name': VOLUME, 'attributes': attributes or {}}], 'containers': list(containers)}
        if created:
            self.create()

    def create(self):
        podspec.write(self.api, **self.spec)
        return self

    @property
    def target(self):
        return self.node.kubelet.root / 'pods' / self.uid / 'volumes/kubernetes.io~csi' / VOLUME / 'mount'

    @property
    def mount(self):
        """A file system of its own, mounted in the node's namespace."""
        return self.node.seen(super().mount)

    def state(self):
        return self.node.kubelet.state()['pods'][self.uid]

    def volume(self):
        return self.state()['volumes'][VOLUME]

    def wait_running(self):
        wait_for(f'{self.label} to run', lambda: self.state()['phase'] == 'running')
        return self

    def sandbox(self):
        """The one that is there now; also after a reboot."""
        state = self.wait_running().state()
        self.netns = _PodNetns(self.node, state['pause'])
        self.ip = self.node.network.plug(self.netns)
        self.cgroup = _ContainerCgroup(Path(state['cgroup']), self.node.kubelet.config['cgroup_driver'])
        return self

    def envoy_argv(self, *more):
        argv = super().envoy_argv(*more)
        at = argv.index('unshare')
        container = argv.index(str(HERE / 'container'))
        argv[container + 2] = '/mnt'
        return argv[:at] + runtime.in_container(self.node.kubelet.root, self.target, *argv[at:])

    def delete(self):
        podspec.write(self.api, **self.spec, deleted=True)

    def force_delete(self):
        (self.api / f'{self.uid}.json').unlink()

    def publish(self, **changes):
        """The kubelet's own call, with a good token, but for these changes of its fields; (method, fields)."""
        context = {'csi.storage.k8s.io/pod.name': self.name, 'csi.storage.k8s.io/pod.namespace': self.ns,
                   'csi.storage.k8s.io/pod.uid': self.uid, 'csi.storage.k8s.io/serviceAccount.name': self.sa,
                   'csi.storage.k8s.io/ephemeral': 'true'}
        fields = {'volume_id': requests.volume_id(self.uid, VOLUME), 'target_path': str(self.target),
                  'volume_context': context, 'volume_capability': {'mount': {}, 'access_mode': {'mode': 1}}, 'readonly': True, 'secrets': tokens(self.token())}
        return 'NodePublishVolume', {**fields, **changes}

    def remove(self):
        if self.netns:
            self.netns.remove()


def tokens(token, audience='istio-ca'):
    """The kubelet's key and its value."""
    value = {audience: {'token': token, 'expirationTimestamp': time.strftime('%FT%TZ', time.gmtime(time.time() + 3600))}}
    return {'csi.storage.k8s.io/serviceAccount.tokens': json.dumps(value)}
