"""A node of its own with a real systemd as process 1 and agentd installed by `make install`."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import yaml

from .node import BUILD
from .pod import envoy_binary
from .run import TOP, Process, cgroup_root, wait_for

HERE = Path(__file__).parent
MODE = 'release'  # a sanitizer needs more than the units allow
# Of a distribution's units none is there: what they do at a start is nothing for a test.
STUBS = ('node', 'sysinit', 'basic', 'shutdown', 'network', 'network-online')


class Machine:
    """The units are those that were installed.  Drop-ins only say where logs go, and shorten times.

    `netns`: name there -> the network namespace of a pod.  `redirect`: its agentd redirects, below the node's cgroup.
    `boot`: name -> text of units that start with it, beside those that are enabled for basic.target."""

    def __init__(self, node, netns=None, redirect=False, boot=None):
        self._node, agentd = node, node.agentd
        self.dir = node.dir / 'machine'
        self._dest, self._units = self.dir / 'dest', self.dir / 'units'
        for folder in (self._units, self.dir / 'netns', self.dir / 'etc'):
            folder.mkdir(parents=True)
        agentd.run = node.dir / 'run'
        agentd.run.mkdir(mode=0o711)
        install(self._dest)
        (self._dest / 'usr/local/bin/envoy').touch(0o755)  # there machine.sh mounts it
        for name, ns in (netns or {}).items():
            (self.dir / 'netns' / name).symlink_to(ns.path)
        flags = ['--redirect', '--cgroup-root', '/run/cgroup', '--redirect-cgroup', node.cgroup_name] if redirect else []
        self.flags = ['--root-file', '0=/etc/agentd/root-cert.pem', *flags]
        self._configure(agentd)
        self._enable(boot or {})
        self._process = Process(
            ['unshare', '--pid', '--mount', '--cgroup', '--uts', '--ipc', '--fork', '--kill-child', HERE / 'machine.sh',
             self.dir, node.dir, agentd.run, agentd.manifests, envoy_binary(), *([cgroup_root(), node.cgroup_name] if redirect else [])], self.dir / 'machine.log', node._cgroup)
        self.init = wait_for('systemd to start', self._find_init)
        wait_for('systemd to be up', lambda: self.systemctl('is-system-running').strip() == 'running')

    def _find_init(self):
        """The child of unshare, once it has become systemd."""
        if not self._process.running():
            raise RuntimeError(f'the machine: {self._process.tail(40)}')
        children = Path(f'/proc/{self._process.pid}/task/{self._process.pid}/children').read_text().split()
        return next((int(c) for c in children if Path(f'/proc/{c}/comm').read_text().strip() == 'systemd'), None)

    def _configure(self, agentd):
        for name in STUBS:
            self.unit(f'{name}.target', f'[Unit]\nDescription={name}\nDefaultDependencies=no\n')
        folder = self.dir / 'etc/agentd'
        folder.mkdir()
        (folder / 'agentd.yaml').write_text(yaml.safe_dump({**agentd.settings, 'control_planes': [agentd.plane]}))
        (folder / 'root-cert.pem').write_bytes(agentd.root_file.read_bytes())
        (folder / 'agentd.env').write_text(f'AGENTD_FLAGS={" ".join(self.flags)}\n')
        agentd.log.touch()
        self.drop_in('agentd.service', 'log', f'StandardOutput=append:{agentd.log}\nStandardError=inherit\n')
        self.drop_in('agentd-envoy@.service', 'log',
                     f'StandardOutput=append:{self._node.dir}/envoy-%i.log\nStandardError=inherit\n')

    def _enable(self, boot):
        """As systemctl enable does for agentd-gate.service, and for these."""
        self.unit('node.target', f'[Unit]\nDefaultDependencies=no\nWants=basic.target {" ".join(boot)}\n')
        self.unit('basic.target', '[Unit]\nDefaultDependencies=no\nWants=agentd-gate.service\n')
        for name, text in boot.items():
            self.unit(name, text)

    def unit(self, name, text):
        (self._units / name).write_text(text)

    def drop_in(self, unit, name, text):
        folder = self._units / f'{unit}.d'
        folder.mkdir(exist_ok=True)
        (folder / f'{name}.conf').write_text(f'[Service]\n{text}')

    def drop_in_of_app(self, unit, uid):
        """The one that is installed for the unit of an app of that pod."""
        self.drop_in(unit, 'pod', f'Environment=AGENTD_POD={uid}\n')
        shutil.copy(self._dest / 'usr/local/share/agentd/app.conf', self._units / f'{unit}.d/agentd.conf')

    def inside(self, *argv):
        """argv that runs in the machine's pid namespace, where agentd can look at it."""
        return ['nsenter', f'--pid=/proc/{self.init}/ns/pid', *map(str, argv)]

    def enter(self, *argv):
        """argv that runs in the machine, as a command of its administrator."""
        return ['nsenter', '-t', str(self.init), '--pid', '--mount', '--cgroup', *map(str, argv)]

    def _systemctl(self, *args):
        return subprocess.run(self.enter('systemctl', *args), text=True, capture_output=True, timeout=120, check=False)

    def systemctl(self, *args):
        """What it says; a RuntimeError if it fails, but for questions."""
        r = self._systemctl(*args)
        if r.returncode and not args[0].startswith('is-'):
            status = self._systemctl('status', '--no-pager', '--full', 'agentd*').stdout
            raise RuntimeError(f'systemctl {" ".join(args)}: {r.returncode} {r.stdout}{r.stderr}{status}')
        return r.stdout

    def show(self, unit, *properties):
        lines = self.systemctl('show', '-p', ','.join(properties), unit).splitlines()
        found = dict(line.partition('=')[::2] for line in lines)
        return [found[p] for p in properties]

    def ours(self, unit, pid):
        """The pid that we know a process of the unit by; `pid` is the machine's."""
        cgroup = self._node._cgroup.path / self.show(unit, 'ControlGroup')[0].lstrip('/')
        for p in (cgroup / 'cgroup.procs').read_text().split():
            if f'\t{pid}\n' in re.search('NSpid:.*\n', Path(f'/proc/{p}/status').read_text())[0]:
                return int(p)
        raise LookupError(f'{unit} has no process {pid}')

    def wait_active(self, unit):
        wait_for(f'{unit} to be active', lambda: self.systemctl('is-active', unit).strip() == 'active')


def install(dest, prefix='/usr/local'):
    """As `make install` does it, of what is built; make knows no path with a blank, but for those from where it runs."""
    subprocess.run(['make', '-s', '-o', 'binaries', 'install', f'DESTDIR={dest}', f'PREFIX={prefix}', f'MODE={MODE}',
                    f'BUILD={os.path.relpath(BUILD, TOP)}'], cwd=TOP, check=True, stdout=subprocess.DEVNULL,
                   env={k: v for k, v in os.environ.items() if k not in ('MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')})
