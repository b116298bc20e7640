"""A cluster of one node with Istio's charts, and agentd as docs/KUBERNETES.md installs it."""
import contextlib
import datetime
import json
import os
import re
import shlex
import subprocess

from tests.e2e.run import TOP

from . import images
from .node import PROGRAMS, V6
from .waiting import wait_for

DOC = TOP / 'docs' / 'KUBERNETES.md'
PARTS = TOP / 'tests' / 'real' / 'parts'
HELM = TOP / 'build' / 'gobin' / 'helm'
SETTLED = datetime.timedelta(seconds=12)
DRIVER, RELEASE = 'agentd.node.mesh', 'agentd-system'


def _istiod(dual_stack):
    """Values of Istio's chart."""
    # Upstream Envoy has no extensions of Istio's.
    env, metadata = {'PILOT_ENABLE_ALPN_FILTER': 'false', 'PILOT_ENABLE_METADATA_EXCHANGE': 'false'}, {}
    if dual_stack:
        env['ISTIO_DUAL_STACK'] = metadata['ISTIO_DUAL_STACK'] = 'true'
    return {'global': {'hub': 'docker.io/istio', 'tag': images.ISTIO_VERSION,
                       'proxy': {'resources': {'requests': {'cpu': '1m', 'memory': '1Mi'}, 'limits': None}}},
            'pilot': {'autoscaleEnabled': False, 'resources': {'requests': {'cpu': '10m', 'memory': '100Mi'}}, 'env': env},
            'meshConfig': {'defaultConfig': {'proxyMetadata': metadata}}, 'telemetry': {'enabled': False}}


def commands(title):
    """The blocks of commands in a section of KUBERNETES.md, each as one script."""
    section = re.search(rf'^##+ {re.escape(title)}$(.*?)(?=^##+ |\Z)', DOC.read_text(), re.M | re.S)[1]
    return re.findall(r'^```\n(.*?)^```$', section, re.M | re.S)


def charts():
    """The folder of Istio's own."""
    out = subprocess.run(['go', '-C', PARTS / 'istio', 'mod', 'download', '-json', 'istio.io/istio'], check=True,
                         capture_output=True, text=True, env={**os.environ, 'GOSUMDB': 'off', 'GOFLAGS': '-mod=mod'}).stdout
    return f'{json.loads(out)["Dir"]}/manifests/charts'


class Cluster:
    def __init__(self, node):
        self.node, self._bin, self._releases = node, node.dir / 'bin', 0
        self._bin.mkdir()
        for name, program in {'kubectl': PROGRAMS / 'kubectl', 'helm': HELM}.items():
            (self._bin / name).symlink_to(program)
        self._env = ['env', f'KUBECONFIG={node.pki.path("admin.conf")}', f'PATH={self._bin}:{os.environ["PATH"]}',
                     f'HOME={node.dir}']

    # Programs
    def script(self, text, patience_s=300):
        """As a person would type it, in the top of the tree."""
        return self.node.run(*self._env, 'bash', '-euo', 'pipefail', '-c', text, timeout=patience_s)

    def kubectl(self, *argv, patience_s=120, **kw):
        return self.node.run(*self._env, 'kubectl', *argv, timeout=patience_s, **kw)

    def helm(self, *argv):
        return self.node.run(*self._env, 'helm', *argv, timeout=300)

    def get(self, kind, name=None, namespace='demo'):
        """An object, or all of a kind; None: not there."""
        words = [kind, *([name] if name else []), '-o', 'json', '--ignore-not-found',
                 *(['-n', namespace] if namespace else [])]
        text = self.kubectl('get', *words)
        found = json.loads(text) if text else None
        return found if name or not found else found['items']

    def apply(self, *objects):
        self.kubectl('apply', '-f', '-', input=_list(objects))

    def exec(self, pod, container, *argv, namespace='demo'):
        return self.kubectl('exec', '-n', namespace, pod, '-c', container, '--', *argv)

    def agentctl(self, *argv):
        return self.exec('ds/agentd', 'agentd', 'agentctl', *argv, namespace=RELEASE)

    # What there is
    def events(self, pod, namespace='demo'):
        return [e['message'] for e in self.get('events', namespace=namespace) if e['involvedObject'].get('name') == pod]

    def pods(self, app, namespace='demo'):
        """The names of all pods of this workload."""
        return [p['metadata']['name'] for p in self.get('pods', namespace=namespace) if p['metadata']['labels'].get('app') == app]

    def pod(self, app, namespace='demo'):
        """The name of a pod of this workload that is not on its way out."""
        return next(p['metadata']['name'] for p in self.get('pods', namespace=namespace)
                    if p['metadata']['labels'].get('app') == app and 'deletionTimestamp' not in p['metadata'])

    def _daemons(self):
        """agentd's pods, without those of `helm test`."""
        return [p['metadata'] for p in self.get('pods', namespace=RELEASE) or []
                if any(o['kind'] == 'DaemonSet' for o in p['metadata'].get('ownerReferences', []))]

    def agentd_pods(self):
        return [p['name'] for p in self._daemons() if 'deletionTimestamp' not in p]

    def agentd_pod(self):
        only, = self.agentd_pods()
        return only

    def restarts(self, namespace, pod):
        status = self.get('pod', pod, namespace)['status']
        return sum(c['restartCount'] for c in status.get('containerStatuses', []))

    def registered(self):
        """Whether the kubelet told the API server of the driver."""
        found = self.get('csinode', 'node', namespace=None)
        return any(d['name'] == DRIVER for d in (found or {}).get('spec', {}).get('drivers') or [])

    def registration(self, since=None):
        """By agentd's log: seconds from its start, or from `since`, to its registration, and how many names of its link that took."""
        said = [json.loads(line) for line in self.kubectl('-n', RELEASE, 'logs', self.agentd_pod()).splitlines()]
        said = [(datetime.datetime.fromisoformat(line['time']), line['msg']) for line in said]
        since = since or said[0][0]
        said = [(at, message) for at, message in said if at >= since]
        n = next((i for i, (_, message) in enumerate(said) if message == 'registered with the kubelet'), None)
        return n is not None and ((said[n][0] - since).total_seconds(), sum('finds agentd by' in message for _, message in said[:n]))

    def well(self):
        with contextlib.suppress(RuntimeError):
            return self.agentctl('status')

    def serials(self):
        return sorted(c['serial'] for c in json.loads(self.agentctl('certs', '-o', 'json'))['certificates'])

    def left_of(self, uids):
        """Mounts, directories and cgroups of these pods."""
        text = self.node.run('sh', '-c', 'cut -d" " -f5 /proc/self/mountinfo; find /var/lib/kubelet/pods /run/agentd/pods '
                             f'/run/agentd/state -mindepth 1 -maxdepth 1; find /sys/fs/cgroup{self.node.below} -type d || :')  # some go meanwhile
        return [line for line in text.splitlines() if any(u in line or u.replace('-', '_') in line for u in uids)]

    def redirection(self, pod):
        """What agentd says of it; None: nothing."""
        rows = json.loads(self.agentctl('redirect', '-o', 'json'))['redirect']
        return next((r for r in rows if r['pod'] == f'demo/{pod}'), None)

    def counters(self):
        """Of client and web: requests that Envoy counted in the direction of this case, and what the programs redirected."""
        found = {}
        for app, cluster in (('client', 'outbound|80||web.demo.'), ('web', 'inbound|8080||')):
            name = self.pod(app)
            page = self.exec(name, 'istio-proxy', 'pilot-agent', 'request', 'GET', 'clusters')
            requests = [line.rpartition('::')[2] for line in page.splitlines()
                        if line.startswith(cluster) and '::rq_total::' in line]
            found[app] = {'requests': sum(map(int, requests)), 'redirected': self.redirection(name)['redirected']}
        return found

    # What is done
    def ask(self, who='deploy/client', url='http://web.demo/', namespace='demo'):
        """The answer; None: there is none."""
        with contextlib.suppress(RuntimeError):
            return self.exec(who, 'app', 'timeout', '5', 'wget', '-q', '-O-', url, namespace=namespace)

    def delete(self, *objects):
        if objects:
            self.kubectl('delete', '-f', '-', '--ignore-not-found', '--wait', input=_list(objects), patience_s=300)

    def refused(self, thing):
        """What the API server says against an object; None: it would take it."""
        try:
            self.kubectl('apply', '--dry-run=server', '-f', '-', input=json.dumps(thing))
        except RuntimeError as e:
            return str(e)
        return None

    def kill(self, program):
        """Whatever runs in the node under this name."""
        self.node.run('kill', '-9', *self.node.run('pgrep', '-x', program).split())

    def evict(self, pod, namespace):
        self.kubectl('create', '--raw', f'/api/v1/namespaces/{namespace}/pods/{pod}/eviction', '-f', '-', input=json.dumps(
            {'apiVersion': 'policy/v1', 'kind': 'Eviction', 'metadata': {'name': pod, 'namespace': namespace}}))

    @contextlib.contextmanager
    def any_pod(self):
        """The API server takes any pod in `demo` for the block."""
        label = ['label', 'namespace', 'demo', '--overwrite']
        self.kubectl(*label, 'pod-security.kubernetes.io/enforce=privileged')
        try:
            yield
        finally:
            self.kubectl(*label, 'pod-security.kubernetes.io/enforce=restricted')

    @contextlib.contextmanager
    def agentd_away(self):
        """No agentd on the node for the block."""
        patch = ['-n', RELEASE, 'patch', 'daemonset', 'agentd', '--type=merge', '-p']
        place = '{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":%s}}}}}'
        self.kubectl(*patch, place % '"yes"')
        try:
            wait_for('agentd to be away', lambda: not self._daemons())
            yield
        finally:
            self.kubectl(*patch, place % 'null')
            self.rolled_out('daemonset/agentd', RELEASE)

    def helm_upgrade(self, *more):
        """As KUBERNETES.md has it, with another value."""
        command, = commands('Upgrade')
        self.script(command.splitlines()[0].replace('--set image.tag=$(cat VERSION)', shlex.join(more)))

    def tag(self, image, name):
        self.node.run('ctr', '-n', 'k8s.io', 'images', 'tag', image, name)

    def next_tag(self):
        """The same image under another name, as a new release's would be."""
        self._releases += 1
        self.tag(images.AGENTD, f'{images.AGENTD.rpartition(":")[0]}:next{self._releases}')
        return f'next{self._releases}'

    def install_before(self):
        """The agentd of an earlier commit with its own chart; for some seconds there is none."""
        self.helm('upgrade', 'agentd', images.BEFORE / 'chart', '-n', RELEASE, '--reset-then-reuse-values', '--set',
                  'image.tag=before,updateStrategy.rollingUpdate.maxSurge=0,updateStrategy.rollingUpdate.maxUnavailable=1')
        self.rolled_out('daemonset/agentd', RELEASE)

    @contextlib.contextmanager
    def upgraded(self, *values):
        """agentd with other values for the block."""
        before = json.loads(self.helm('status', 'agentd', '-n', RELEASE, '-o', 'json'))['version']
        self.helm_upgrade(*values)
        self.rolled_out('daemonset/agentd', RELEASE)
        try:
            yield
        finally:
            self.helm('rollback', 'agentd', str(before), '-n', RELEASE)
            self.rolled_out('daemonset/agentd', RELEASE)

    # Waiting
    def wait_up(self, patience_s=120):
        """For the API server and the node."""
        def ready():
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                node = self.get('node', 'node', namespace=None)
                return node and conditions(node).get('Ready') == 'True'
        wait_for('the node to be ready', ready, patience_s)

    def wait_registered(self):
        wait_for('the kubelet to know agentd', lambda: self.registered() and self.well())

    def restart_kubelet(self):
        """Containers that started less than 10 s before a kubelet are unready until it has probed them, whoever's they are."""
        def young():
            now = datetime.datetime.now(datetime.timezone.utc)
            all_of = (c for p in self.get('pods') for kind in ('initContainerStatuses', 'containerStatuses')
                      for c in p['status'].get(kind, []) if 'running' in c['state'])
            return [c for c in all_of if now - datetime.datetime.fromisoformat(c['state']['running']['startedAt']) < SETTLED]
        wait_for('all containers to be older', lambda: not young())
        began = datetime.datetime.now(datetime.timezone.utc)
        self.node.restart('kubelet')
        return began

    def ready(self, pod):
        self.kubectl('-n', 'demo', 'wait', '--for=condition=Ready', f'pod/{pod}', '--timeout=120s', patience_s=130)

    def wait_served(self, servers, patience_s):
        """Every server answered, through both Envoys."""
        heard = set()

        def asked():
            heard.add((self.ask() or '').strip())
            return servers <= heard
        try:
            wait_for('all servers to answer', asked, patience_s)
        except TimeoutError as e:
            pods = self.kubectl('get', 'pods', '-A', '-o', 'wide') + self.kubectl('describe', 'pods', '-n', 'demo')
            raise TimeoutError(f'{e}; heard {heard} of {servers}\n{pods}') from None

    def rolled_out(self, what, namespace='demo', patience_s=300):
        self.kubectl('-n', namespace, 'rollout', 'status', what, f'--timeout={patience_s}s', patience_s=patience_s + 10)

    # Installation
    def load_images(self):
        for reference, archive in images.make():
            self.node.run('ctr', '-n', 'k8s.io', 'images', 'import', '--base-name', reference.rpartition(':')[0], archive)
            if reference == images.AGENTD_BEFORE:  # its version may be the same one
                self.tag(f'{reference.rpartition(":")[0]}:{images.version_before()}', reference)

    def install_istio(self):
        self.values = self.node.dir / 'istiod.yaml'
        self.values.write_text(json.dumps(_istiod(len(self.node.families) == 2)))
        top = charts()
        self.kubectl('create', 'namespace', 'istio-system')
        self.helm('install', 'istio-base', f'{top}/base', '-n', 'istio-system')
        self.helm('install', 'istiod', f'{top}/istio-control/istio-discovery', '-n', 'istio-system', '-f', self.values)
        self.rolled_out('deployment/istiod', 'istio-system')

    @contextlib.contextmanager
    def second_istiod(self, revision):
        """Of a revision of its own, with the template that the first one has."""
        name = f'istiod-{revision}'
        self.helm('install', name, f'{charts()}/istio-control/istio-discovery', '-n', 'istio-system', '-f', self.values,
                  '-f', self.node.dir / 'agentd-injection.yaml', '--set', f'revision={revision}')
        try:
            self.rolled_out(f'deployment/{name}', 'istio-system')
            yield f'{name}.istio-system.svc:15012'
        finally:
            self.helm('uninstall', name, '-n', 'istio-system', '--wait')

    def _install(self):
        own = {'kubepods': f'{self.node.below[1:]}/kubepods'} if self.node.whole_tree else {}
        if self.node.families == [V6]:
            own['ipFamily'] = 'ipv6'
        more = ''.join(f' --set {name}={value}' for name, value in own.items())
        return re.sub(r'^(helm install .*)$', rf'\1{more}', commands('Install')[0], flags=re.M)

    def helm_install_again(self):
        """The chart alone."""
        self.script(next(line for line in self._install().splitlines() if line.startswith('helm install')))

    def install_agentd(self):
        """Word for word, but for what is this cluster's: where Istio's chart lies, a kubelet's --cgroup-root, IPv6 alone."""
        _, _, template = commands('Install')
        self.script(self._install())
        chart = f'{charts()}/istio-control/istio-discovery'
        self.script(f'cd {self.node.dir}\n' + re.sub(r'istio/istiod (.*)--version \S+', rf'{chart} \1', template))


def _list(objects):
    return json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': objects})


def conditions(thing):
    return {c['type']: c['status'] for c in thing.get('status', {}).get('conditions', [])}
