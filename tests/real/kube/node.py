"""A Kubernetes node in namespaces and cgroups of its own: etcd, the control plane, containerd, the kubelet.

Its disk is a folder, so it can be booted again: whatever ran is gone then, the disk is as it was.  There are three kinds.
'container' has a cgroup namespace, as kind's nodes have: its tree's root is far from the machine's; it is dual stack.
'whole' sees the whole tree, its kubelet has a --cgroup-root, and all of it is IPv4.
'systemd' is like the first one with a systemd as process 1, which makes the cgroups, with a newer containerd, and all of it is IPv6.
"""
import collections
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import yaml

from tests.e2e.run import TOP, Process, cgroup_root, remove_cgroup, sh, wait_for

from .pki import Pki

HERE = Path(__file__).parent
PROGRAMS = TOP / 'build' / 'real' / 'kubernetes'
NEWER = TOP / 'build' / 'real' / 'containerd'
NAME = 'node'
Family = collections.namedtuple('Family', 'address pods services server dns')
V4 = Family('172.20.0.2', '10.244.0.0/16', '10.96.0.0/16', '10.96.0.1', '10.96.0.10')
V6 = Family('fd00:20::2', 'fd00:244::/64', 'fd00:96::/112', 'fd00:96::1', 'fd00:96::a')
FAMILIES = {'container': [V4, V6], 'whole': [V4], 'systemd': [V6]}
# In the order in which a boot starts them, unless another is asked for.
DAEMONS = 'etcd', 'apiserver', 'controller-manager', 'scheduler', 'services', 'containerd', 'kubelet'
PAUSE = 'registry.example/pause:1'


def _flags(**flags):
    return [f'--{name.replace("_", "-")}={value}' for name, value in flags.items()]


class Daemon(Process):
    """A program of the node, started again when it ends by itself, as systemd does."""

    def __init__(self, node, argv, log):
        super().__init__(node.command('sh', '-c', 'while :; do "$@"; sleep 0.5; done', 'again', *argv), log, node.system)
        self.began = time.monotonic()

    def end(self):
        """Its group has what nsenter started, too; containers and their shims have their own."""
        os.killpg(self.pid, signal.SIGKILL)
        self.wait()


class Node:
    def __init__(self, root, cgroup, kind='container'):
        self.dir, self.kind, self.whole_tree = root / NAME, kind, kind == 'whole'
        self._by_systemd = kind == 'systemd'
        self.disk = self.dir / 'disk'
        self.disk.mkdir(parents=True)
        self.cgroup, self.system = cgroup.path / NAME, _Folder(cgroup.path / NAME / 'system')
        self.families = FAMILIES[kind]
        first = self.families[0]
        self.dns, self._address = first.dns, first.address
        # As the node's processes see it.
        self.below = '/' + str(self.cgroup.relative_to(cgroup_root())) if self.whole_tree else ''
        self.daemons, self.world = {}, None
        api = f'https://[{first.address}]:6443' if first is V6 else f'https://{first.address}:6443'
        self.pki = Pki(self.dir / 'pki', api, [first.address, first.server, '127.0.0.1', 'kubernetes.default.svc'])
        self._write('kubelet.yaml', yaml.safe_dump(self._kubelet()))
        self._runtime()
        self._write('disk/etc/cni/net.d/10-pods.conflist', json.dumps(_network([f.pods for f in self.families])))
        self._write('disk/etc/resolv.conf', f'nameserver {first.dns}\n')

    def _write(self, name, text):
        (self.dir / name).parent.mkdir(parents=True, exist_ok=True)
        (self.dir / name).write_text(text)

    def _runtime(self):
        """containerd, and the runc that it is to take."""
        newer = self._by_systemd
        self.containerd = NEWER / 'containerd' if newer else Path(shutil.which('containerd'))
        self.runc = NEWER / 'runc' if newer else Path(shutil.which('runc'))
        self._write('runc', f'#!/bin/sh\nexec env RUNC={self.runc} {HERE / "runc"} "$@"\n')
        (self.dir / 'runc').chmod(0o755)
        self._write('containerd.toml', _containerd(self.dir / 'runc', self._by_systemd))

    # Processes
    def boot(self, order=DAEMONS):
        self.cgroup.mkdir()
        namespaces = ['--mount', '--pid', '--net', '--uts', '--ipc', *([] if self.whole_tree else ['--cgroup'])]
        log = self.dir / 'world.log'
        log.unlink(missing_ok=True)
        self.world = Process(['setpriv', '--pdeathsig', 'KILL', 'unshare', *namespaces, '--fork', '--kill-child',
                              HERE / 'world', self.disk, self.below, 'systemd' if self._by_systemd else '', *(f'{f.address}/24' for f in self.families)], log,
                             _Folder(self.cgroup))
        wait_for('the node', lambda: 'up' in log.read_text().split('\n') or self._dead())
        for name in order:
            self.start(name)
        return self

    def _dead(self):
        if not self.world.running():
            raise RuntimeError(f'the node ended: {self.world.tail()}')

    def command(self, *argv):
        """argv that runs in the node, once in its cgroup."""
        init = Path(f'/proc/{self.world.pid}/task/{self.world.pid}/children').read_text().split()[0]
        kinds = ['mount', 'pid', 'net', 'uts', 'ipc', *([] if self.whole_tree else ['cgroup'])]
        return ['nsenter', '--target', init, *(f'--{kind}' for kind in kinds), 'env', '-C', str(TOP), *map(str, argv)]

    def run(self, *argv, **kw):
        """A command to its end; its output."""
        move = ['/bin/sh', '-c', 'echo 0 >"$0" && exec "$@"', self.system.path / 'cgroup.procs']
        try:
            return sh(*move, *self.command(*argv), **kw)
        except RuntimeError as e:  # without all that leads into the node
            raise RuntimeError(str(e).replace(' '.join(map(str, [*move, *self.command()])), 'in the node:')) from None

    def start(self, name):
        self.daemons[name] = Daemon(self, self._argv(name), self.dir / f'{name}.log')

    def kill(self, name):
        self.daemons.pop(name).end()

    def restart(self, name):
        self.kill(name)
        self.start(name)

    def shut_down(self):
        """Everything that is not on the disk is gone."""
        self.world.kill()
        self.daemons.clear()
        remove_cgroup(self.cgroup)

    def reboot(self, order=DAEMONS):
        self.shut_down()
        return self.boot(order)

    def logs(self):
        return sorted(self.dir.glob('*.log'))

    # What they are told
    def _argv(self, name):
        pki = self.pki.path
        own = _flags(kubeconfig=pki(f'{name}.conf'))
        accounts = pki('accounts.key')
        return {
            'etcd': lambda: [PROGRAMS / 'server', *_flags(
                data_dir=self.disk / 'etcd', unsafe_no_fsync='true', listen_client_urls='http://127.0.0.1:2379',
                advertise_client_urls='http://127.0.0.1:2379', listen_peer_urls='http://127.0.0.1:2380')],
            'apiserver': lambda: [PROGRAMS / 'kube-apiserver', *_flags(
                etcd_servers='http://127.0.0.1:2379', advertise_address=self._address, allow_privileged='true',
                kubelet_preferred_address_types='InternalIP',
                authorization_mode='Node,RBAC', client_ca_file=self.pki.ca, 
                service_cluster_ip_range=','.join(f.services for f in self.families),
                tls_cert_file=pki('apiserver.crt'), tls_private_key_file=pki('apiserver.key'),
                kubelet_client_certificate=pki('admin.crt'), kubelet_client_key=pki('admin.key'),
                service_account_issuer='https://kubernetes.default.svc.cluster.local',
                service_account_key_file=accounts, service_account_signing_key_file=accounts)],
            'controller-manager': lambda: [PROGRAMS / 'kube-controller-manager', *own, *_flags(
                service_account_private_key_file=accounts, root_ca_file=self.pki.ca, leader_elect='false',
                use_service_account_credentials='true')],
            'scheduler': lambda: [PROGRAMS / 'kube-scheduler', *own, *_flags(leader_elect='false')],
            'services': lambda: [sys.executable, '-B', '-m', 'tests.real.kube.services', pki('admin.conf'), self.dns],
            # Its shim is the first of the path.
            'containerd': lambda: ['env', f'PATH={self.containerd.parent}:{os.environ["PATH"]}', self.containerd,
                                   '--config', self.dir / 'containerd.toml'],
            'kubelet': lambda: [PROGRAMS / 'kubelet', *own, *_flags(
                config=self.dir / 'kubelet.yaml', hostname_override=NAME, 
                node_ip=','.join(f.address for f in self.families))],
        }[name]()

    def _kubelet(self):
        return {
            'apiVersion': 'kubelet.config.k8s.io/v1beta1', 'kind': 'KubeletConfiguration',
            'authentication': {'x509': {'clientCAFile': str(self.pki.ca)}, 'webhook': {'enabled': True}},
            'containerRuntimeEndpoint': 'unix:///run/containerd/containerd.sock',
            'clusterDNS': [self.dns], 'clusterDomain': 'cluster.local', 'resolvConf': '/etc/resolv.conf', 'maxPods': 300,
            'cgroupDriver': 'systemd' if self._by_systemd else 'cgroupfs', 'cgroupsPerQOS': True, 'enforceNodeAllocatable': ['none'],
            'cgroupRoot': self.below or '/',
            'failSwapOn': False, 'makeIPTablesUtilChains': False, 'protectKernelDefaults': True,
            'evictionHard': {'memory.available': '1%', 'nodefs.available': '1%', 'imagefs.available': '1%'},
            'imageGCHighThresholdPercent': 100, 'imageMaximumGCAge': '0s', 'kubeAPIQPS': 100, 'kubeAPIBurst': 200,
            'serializeImagePulls': False}


class _Folder:
    """A cgroup that is made by others."""

    def __init__(self, path):
        self.path = path


def _containerd(runc, systemd):
    return f'''version = 2
disabled_plugins = [{", ".join(f'"io.containerd.snapshotter.v1.{name}"' for name in ("aufs", "btrfs", "devmapper", "zfs"))}]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      SystemdCgroup = {str(systemd).lower()}
'''


def _network(subnets):
    """A cable for each pod: what goes from pod to pod passes the node, and so its rules for Services."""
    return {'cniVersion': '1.0.0', 'name': 'pods', 'plugins': [{'type': 'ptp', 'ipam': {
        'type': 'host-local', 'ranges': [[{'subnet': subnet}] for subnet in subnets],
        'routes': [{'dst': '::/0' if ':' in subnet else '0.0.0.0/0'} for subnet in subnets]}}]}
