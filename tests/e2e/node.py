"""One node: a directory, a control plane, agentd, and a network for its pods."""
import contextlib
import json
import os
import re
import socket
import subprocess
from pathlib import Path

import yaml

from tests.istiod import control, journal
from tests.istiod.__main__ import main as run_istiod
from tests.istiod.tokens import Tokens

from .forked import Forked
from .netns import Network
from .pod import Pod
from .run import RUN, TOP, Cgroup, Process, sh, wait_for

MODE = os.environ.get('AGENTD_MODE', 'asan')
PLAIN = {'asan': 'release'}  # the same without a sanitizer
BUILD = Path(os.environ.get('AGENTD_BUILD', TOP / 'build'))
READY = ' is ready after '
JWT = re.compile(r'eyJ[\w-]{10,}\.eyJ[\w-]{10,}')
HELLO = re.compile(r'No match found for server name: ([\w.-]+[.]istiod)\b')
SANITIZER = re.compile(r'ERROR: \w+Sanitizer|runtime error:|Sanitizer: |ASSERTION|Assertion')


class Istiod:
    """The development control plane on 127.0.0.1; it keeps its port when started again.

    Its agentd calls it by a name that no other one has."""

    def __init__(self, directory, cgroup, *options):
        self.dir, self._cgroup, self._options = directory, cgroup, options
        self.dir.mkdir()
        self.tokens = Tokens(self.dir)
        self.server_name = f'{directory.parent.name}.{RUN}.istiod'
        self.address = '127.0.0.1:0'
        self.start()

    def start(self, netns=None):
        argv = ['serve', '--dir', str(self.dir), '--listen', self.address, '--name', self.server_name, *self._options]
        log = self.dir / 'log'
        skip = log.stat().st_size if log.exists() else 0
        self.process = Forked(run_istiod, [argv], log, self._cgroup, netns and netns.path)

        def listening():
            if not self.process.running():
                raise RuntimeError(f'control plane: {self.process.tail()}')
            with open(log, encoding='utf-8') as f:
                f.seek(skip)
                return next((json.loads(line)['listening'] for line in f if line.endswith('}\n')), None)
        self.address = wait_for('the control plane to listen', listening)

    def order(self, do, **what):
        control.order(self.dir, do=do, **what)

    def journal(self, event=None, **match):
        return journal.read(self.dir, event, **match)

    def issued(self, **match):
        return self.journal('csr', code='OK', **match)

    def set(self, pod, **kinds):
        """clusters=[...], listeners=[...]: what this pod ("ns.name") gets from now on."""
        folder = self.dir / 'resources' / pod
        folder.mkdir(parents=True, exist_ok=True)
        for kind, resources in kinds.items():
            new = folder / f'{kind}.new'
            new.write_text(json.dumps(resources))
            new.rename(folder / f'{kind}.json')

    def strangers(self):
        """Other control planes' names, by which agentds called that do not belong here (grpc's log says so)."""
        return set(HELLO.findall((self.dir / 'log').read_text(errors='replace'))) - {self.server_name}

    @property
    def root_file(self):
        return self.dir / 'ca' / 'root-cert.pem'


class Said:
    """What the log says from now on."""

    def __init__(self, agentd):
        self._log, self._read = agentd.log, agentd.log.stat().st_size if agentd.log.exists() else 0

    def text(self):
        return self._log.read_bytes()[self._read:].decode(errors='replace')

    def wait(self, what, times=1):
        wait_for(f'the log to say {what}', lambda: self.text().count(what) >= times)
        return self.text()


class Agentd:
    """The daemon.  Its settings are those of the configuration file; `plane` changes the control plane's."""

    def __init__(self, directory, cgroup, istiod, mode=MODE):
        self.dir, self.cgroup = directory, cgroup
        self.run = directory.parent / 'run'  # the broker wants it short: it is part of sockets' addresses
        self.manifests = directory / 'pods.d'
        self.mode, self._bin = mode, BUILD / mode
        self.log = directory / 'agentd.log'
        self.root_file = istiod.root_file
        self.flags = []
        self.around = []  # a command that runs the rest of its arguments
        self.tells = True  # False: its log does not say in time, or ever, that a worker is ready
        self.netns = None  # its own, where that is not the test's: admin.sock answers who is in it
        self.plane = {'name': 'istiod', 'address': istiod.address, 'server_name': istiod.server_name,
                      'cluster_id': 'Kubernetes'}
        # Certificates of tests live for seconds.
        self.settings = {'node_name': 'node-1', 'log_level': 'debug',
                         'secret_ttl_min_s': 1, 'certificate_reissue_min_s': 1}
        self.dir.mkdir()
        self.manifests.mkdir()
        self.process = None

    def program(self, name, mode=None):
        """How one of agentd's programs is run: the test's build, or another one."""
        folder = BUILD / mode if mode else self._bin
        missing = [b for b in ('agentd', 'agentd-worker', 'agentctl') if not (folder / b).exists()]
        if missing:
            raise RuntimeError(f'build first: no {", ".join(missing)} in {folder}')
        return [folder / name]

    def start(self):
        """Until its broker heard that the worker is ready: who kills that earlier ends both."""
        said = Said(self)
        config = self.dir / 'agentd.yaml'
        config.write_text(yaml.safe_dump({**self.settings, 'control_planes': [self.plane]}))
        self.process = Process(
            [*self.around, *self.program('agentd'), '--run', self.run,
             *(['--manifests', self.manifests] if self.manifests else []), '--config', config,
             '--identity-dir', self.dir.parent / 'identity',
             '--root-file', f'0={self.root_file}', *self.flags], self.log, self.cgroup,
            env=self.environment())

        def answers():
            if not self.process.running():
                raise RuntimeError(f'agentd ended:\n{self.process.tail()}')
            return (not self.tells or READY in said.text()) and self.ctl('status')
        wait_for('agentd to answer, and its worker to be ready', answers)

    @staticmethod
    def environment():
        return {**os.environ, 'ASAN_OPTIONS': 'detect_leaks=1:abort_on_error=0',
                'UBSAN_OPTIONS': 'print_stacktrace=1:halt_on_error=1'}

    def _beside(self):
        return self.netns.inside() if self.netns else contextlib.nullcontext()

    def _run_ctl(self, program, *args):
        with self._beside():
            return subprocess.run([*program, '--run', self.run, *args],
                                  text=True, capture_output=True, timeout=60, check=False)

    def ctl(self, *args):
        """What agentctl prints as JSON; exit status 1 only says that there is a problem to read.

        Tests ask for it again and again until it is so: under a sanitizer that would be a sixth of all that they compute."""
        r = self._run_ctl(self.program('agentctl', PLAIN.get(self.mode)), *args, '-o', 'json')
        if r.returncode > 1 or not r.stdout:
            raise ValueError(f'agentctl {" ".join(args)}: {r.returncode} {r.stderr}')
        return json.loads(r.stdout)

    def ctl_text(self, *args):
        """(exit status, text) as a person sees it."""
        r = self._run_ctl(self.program('agentctl'), *args)
        return r.returncode, r.stdout + r.stderr

    def page(self, name):
        """What the control socket answers to GET /NAME, head and body."""
        with self._beside(), contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
            s.settimeout(60)
            s.connect(str(self.run / 'admin.sock'))
            s.sendall(f'GET /{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'.encode())
            return b''.join(iter(lambda: s.recv(1 << 16), b'')).decode(errors='replace')

    def metric(self, name, *labels):
        """The sum of the samples that have all these labels ('pod="web"')."""
        return sum(float(line.rpartition(' ')[2]) for line in self.page('metrics').splitlines()
                   if re.match(rf'{name}\b', line) and all(label in line for label in labels))

    def keep_answers(self):
        """All that the control socket says, in a file that is searched like a log."""
        with open(self.dir / 'answers.log', 'a', encoding='utf-8') as f:
            for page in ('status', 'pods', 'certs', 'xds', 'metrics'):
                f.write(self.page(page) + '\n')

    def worker_pid(self):
        def is_worker(pid):  # a child of the broker's has its name: it closes a descriptor, or becomes the worker
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                return pid != self.process.pid and Path(f'/proc/{pid}/comm').read_text() != 'agentd\n'
            return False
        pids = [pid for pid in self.cgroup.pids() if is_worker(pid)]
        return pids[0]  # LookupError: it is being replaced

    def kill(self):
        """SIGKILL for the broker and the worker, as nothing else of theirs would get to run."""
        pids = self.cgroup.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.process.wait()
        wait_for('agentd to be gone', lambda: not self.cgroup.pids())

    def stop(self):
        """Orderly; the exit status."""
        status = self.process.stop()
        wait_for('the worker to be gone', lambda: not self.cgroup.pids())
        return status

    def complaints(self):
        """Lines of sanitizers, and of programs that found themselves broken."""
        text = self.log.read_text(errors='replace') if self.log.exists() else ''
        return [line for line in text.splitlines() if SANITIZER.search(line)]


class Node:
    _count = 0

    def __init__(self, root, cgroup, istiod_options=(), mode=MODE):
        Node._count += 1
        self.name = f'{RUN}.{Node._count}'
        self.dir = root / str(Node._count)
        self.dir.mkdir()
        self._cgroups = {}
        self.cgroup_name = f'{cgroup.below_root()}/{Node._count}'
        self._cgroup = Cgroup(self.cgroup_name)
        self.network = Network(self.name)
        self.istiod = self.control_plane(istiod_options)
        self.agentd = Agentd(self.dir / 'agentd', self.cgroup('agentd'), self.istiod, mode)
        self.bpffs = self.dir / 'bpf'
        self.pods = []

    def control_plane(self, options):
        return Istiod(self.dir / 'istiod', self.cgroup('istiod'), *options)

    def cgroup(self, name):
        return Cgroup(f'{self.cgroup_name}/{name}')

    def capture(self, below=''):
        """Traffic comes to the Envoys by itself, unless a pod's manifest says otherwise; before agentd starts.

        Only of pods below that cgroup, which is there, if one is named."""
        self.bpffs.mkdir()
        sh('mount', '-t', 'bpf', 'bpf', self.bpffs)
        self.agentd.flags += ['--redirect', '--redirect-cgroup', f'{self.cgroup_name}/{below}'.rstrip('/'),
                              '--probes-cgroup', self.cgroup_name, '--bpffs', self.bpffs]
        self.agentd.settings['redirect'] = 'ebpf'
        return self

    def pod(self, name, **kw):
        """A pod whose manifest is there; its Envoy is not started."""
        pod = Pod(self, name, **kw)
        self.pods.append(pod)
        return pod

    def logs(self):
        return sorted(p for p in self.dir.rglob('*log') if p.is_file())

    def leaks(self, secrets=()):
        """(file, what) for each secret text in a log or an answer of agentd: keys, any JWT, these."""
        wanted = {'PRIVATE KEY'} | {t for p in self.pods for t in p.tokens} | set(secrets)
        texts = {log.name: log.read_text(errors='replace') for log in self.logs()}
        return [(name, what[:12]) for name, text in texts.items()
                for what in [t for t in wanted if t in text] + JWT.findall(text)]

    def remove(self):
        """Everything is taken down, whatever fails; the first failure is raised at the end."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._unmount)
            stack.callback(self._cgroup.remove)
            stack.callback(self.network.remove)
            for pod in self.pods:
                stack.callback(pod.remove)
            stack.callback(self.istiod.process.stop)
            if self.agentd.process and self.agentd.process.running():
                stack.callback(self._stop_agentd)

    def _unmount(self):
        for place in (self.agentd.run / 'state', self.bpffs):
            if os.path.ismount(place):
                sh('umount', '--lazy', place)

    def _stop_agentd(self):
        with contextlib.suppress(OSError):
            self.agentd.keep_answers()
        status = self.agentd.stop()
        if status != 0:
            raise RuntimeError(f'agentd ended with {status}:\n{self.agentd.process.tail(40)}')
