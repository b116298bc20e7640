"""A stock istiod of one version on the stand-in API, with configuration and authorities in files; what it says of its clients."""
import json
import os
import sys
import urllib.error
import urllib.request

import yaml

from tests.e2e.run import TOP, Process, wait_for
from tests.istiod.ca import Authority, key_pem, pem
from tests.istiod.tokens import Tokens

NEWEST = '1.29.1'  # tests/real/parts/istio
SYSTEM = 'istio-system'
HOST = f'istiod.{SYSTEM}.svc'
API = 'http://127.0.0.1:6443'
# Upstream's Envoy does not have what these would ask for.
PLAIN_ENVOY = {'PILOT_ENABLE_ALPN_FILTER': 'false', 'PILOT_ENABLE_METADATA_EXCHANGE': 'false'}


def programs(version):
    """Where `tests/real/parts/build` put this version's."""
    return TOP / 'build' / 'real' / ('istio' if version == NEWEST else f'istio-{version}')


def http(url, body=None, method=None, kind='application/json'):
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, {'content-type': kind}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


class Api:
    """The stand-in for Kubernetes."""

    def __init__(self, directory, cgroup):
        self._process = Process([sys.executable, '-m', 'tests.real.istiod.kube', '--listen', API.rpartition('/')[2],
                                 '--dir', directory], directory / 'kube.log', cgroup)
        wait_for('the stand-in API', lambda: http(f'{API}/version'))
        for ns in SYSTEM, 'demo', 'default', 'kube-system':
            self.apply('api/v1/namespaces', ns, {'metadata': {'labels': {'istio-injection': 'enabled'}}, 'status': {'phase': 'Active'}})
        self.apply(f'api/v1/namespaces/{SYSTEM}/configmaps', 'istio', {'data': {'mesh': '{}', 'meshNetworks': '{}'}})
        self.apply('api/v1/nodes', 'node-1', {'metadata': {'labels': {
            'topology.kubernetes.io/region': 'r1', 'topology.kubernetes.io/zone': 'z1'}}})

    def apply(self, where, name, obj):
        return http(f'{API}/{where}/{name}', obj, 'PATCH', 'application/apply-patch+yaml')

    def stall(self, on):
        http(f'{API}/stall', {'on': on}, 'PUT')

    def delete(self, where, name):
        return http(f'{API}/{where}/{name}', method='DELETE')

    def get(self, path):
        return http(f'{API}/{path}')


class Istiod:
    """Listens at the usual ports of this network namespace.  `address`: where pods reach it."""

    def __init__(self, directory, cgroup, version, address='127.0.0.1', flags=(), env=()):
        self.dir, self._cgroup, self.version = directory, cgroup, version
        self.flags, self.env = list(flags), {**PLAIN_ENVOY, **dict(env)}
        self.host, self.address, self.server_name = address, f'{HOST}:15012', HOST
        for folder in ('config', 'etc/cacerts'):
            (directory / folder).mkdir(parents=True)
        self.tokens = Tokens(directory)
        self.api = Api(directory, cgroup)
        self._authorities = {}
        self.use_authority('a')
        self.mesh({})
        self.configure('strict', {'apiVersion': 'security.istio.io/v1', 'kind': 'PeerAuthentication',
                                  'metadata': {'name': 'default', 'namespace': SYSTEM}, 'spec': {'mtls': {'mode': 'STRICT'}}})
        self.process = None

    # Authorities, as a Secret `cacerts` brings them
    def authority(self, name):
        return self._authorities.setdefault(name, Authority.new(name, intermediate=True))

    def use_authority(self, issuer, roots=None):
        """Issue with `issuer`, announce `roots` (only its own).  The volume changes at one moment, as the kubelet does it."""
        authority, volume = self.authority(issuer), self.dir / 'etc/cacerts'
        roots_pem = ''.join(pem(self.authority(r).root) for r in roots or [issuer])
        data = volume / f'..{len(list(volume.iterdir()))}'
        data.mkdir()
        for name, text in (('root-cert.pem', roots_pem), ('ca-key.pem', key_pem(authority.key)),
                           ('ca-cert.pem', pem(authority.certificate)),
                           ('cert-chain.pem', pem(authority.certificate) + pem(authority.root))):
            (data / name).write_text(text)
            if not (volume / name).is_symlink():
                (volume / name).symlink_to(f'..data/{name}')
        (volume / '..data.new').symlink_to(data.name)
        (volume / '..data.new').rename(volume / '..data')
        self.root_file.with_suffix('.new').write_text(roots_pem)
        self.root_file.with_suffix('.new').rename(self.root_file)

    @property
    def root_file(self):
        """What nodes trust: the ConfigMap istio-ca-root-cert."""
        return self.dir / 'root-cert.pem'

    # Configuration
    def configure(self, name, *objects):
        """The file `name` of istiod's configuration; without objects it goes."""
        file = self.dir / 'config' / f'{name}.yaml'
        if not objects:
            file.unlink()
            return
        new = self.dir / f'{name}.new'
        new.write_text(yaml.safe_dump_all(objects))
        new.rename(file)

    def mesh(self, settings):
        """What is not the default of MeshConfig; a push of everything."""
        new = self.dir / 'mesh.new'
        new.write_text(yaml.safe_dump({'ingressControllerMode': 'OFF', **settings}))
        new.rename(self.dir / 'mesh')

    # The process
    def start(self):
        kubeconfig = self.dir / 'kubeconfig'
        kubeconfig.write_text(yaml.safe_dump({
            'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'test', 'users': [{'name': 'test', 'user': {}}],
            'clusters': [{'name': 'test', 'cluster': {'server': API}}],
            'contexts': [{'name': 'test', 'context': {'cluster': 'test', 'user': 'test'}}]}))
        env = {'PATH': os.environ['PATH'], 'POD_NAME': 'istiod-0', 'POD_NAMESPACE': SYSTEM, 'REVISION': 'default',
               'ROOT_CA_DIR': 'etc/cacerts', **self.env}
        self.process = Process(
            ['env', '-C', self.dir, programs(self.version) / 'pilot-discovery', 'discovery', '--kubeconfig', kubeconfig,
             '--configDir', 'config', '--meshConfig', 'mesh', '--networksConfig', 'none', '--httpsAddr', '',
             '--domain', 'cluster.local', '--ctrlz_port', '0', '--log_output_level', 'default:info,ads:debug', *self.flags],
            self.dir / 'istiod.log', self._cgroup, env=env)
        return self

    def wait_ready(self):
        def ready():
            if not self.process.running():
                raise RuntimeError(f'istiod {self.version} ended:\n{self.process.tail(40)}')
            with urllib.request.urlopen('http://127.0.0.1:8080/ready', timeout=5) as answer:
                return answer.status == 200
        wait_for(f'istiod {self.version} to be ready', ready)
        return self

    def debug(self, page):
        """What istiod itself knows: /debug/PAGE."""
        return http(f'http://127.0.0.1:8080/debug/{page}')

    def said(self, text):
        return text in (self.dir / 'istiod.log').read_text(errors='replace')

    def synced(self, pod):
        """Its row of syncz, once all that was sent is ACKed; else {}."""
        for row in self.debug('syncz') or ():
            if row['proxy'] == f'{pod.name}.{pod.ns}':
                sent = {k: row.get(f'{k}_sent') for k in ('cluster', 'listener', 'route', 'endpoint')}
                if all(sent.values()) and all(row.get(f'{k}_acked') == v for k, v in sent.items()):
                    return row
        return {}

    # What tests of the development control plane ask of theirs
    def journal(self, event=None, **match):
        return []

    def strangers(self):
        return set()

