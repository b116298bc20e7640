"""One mesh in one network namespace: a stock istiod, agentd, and on a bridge pods of agentd's beside pods with pilot-agent.

    istiod, agentd, the API: 10.77.0.1 ── bridge ── 10.77.0.2, 10.77.0.3, ...: a network namespace for each pod
"""
import json
import os
from pathlib import Path

from tests.e2e import clients
from tests.e2e.node import Node
from tests.e2e.pod import Pod, envoy_binary
from tests.e2e.run import Process, sh, wait_for

from .istiod import HOST, NEWEST, Istiod, programs
from .kube import NETNS

VERSION = os.environ.get('REAL_ISTIOD', NEWEST)
HERE = Path(__file__).parent
APP, SERVICE = 8080, 80
LABELS = {'security.istio.io/tlsMode': 'istio', 'service.istio.io/canonical-revision': 'latest'}


class Host:
    """The namespace that the test itself is in (netns.own), as the bridge's network sees it."""

    name = str(os.getpid())

    @staticmethod
    def ip(*argv):
        sh('ip', *argv)


class World(Node):
    """`pod` and `sidecar` make pods that the API knows, each with a Service of its name."""

    def __init__(self, root, cgroup, version=VERSION, flags=(), env=(), **kw):
        self._how = {'version': version, 'flags': flags, 'env': env}
        super().__init__(root, cgroup, **kw)
        hosts = self.dir / 'hosts'
        hosts.write_text(f'127.0.0.1 localhost\n{self.istiod.host} {HOST}\n')
        agentd = self.agentd
        agentd.around = ['unshare', '--mount', '--propagation', 'slave', 'sh', '-c', 'mount --bind "$0" /etc/hosts && exec "$@"', hosts]
        agentd.plane |= {'mesh_id': 'cluster.local'}
        del agentd.plane['server_name']  # the address is its name
        self.capture()

    def control_plane(self, _):
        self.address = self.network.plug(Host)
        return self.prepared(Istiod(self.dir / 'istiod', self.cgroup('istiod'), address=self.address, **self._how)).start()

    def prepared(self, istiod):
        """Before it starts."""
        return istiod

    def start(self):
        self.istiod.wait_ready()
        self.agentd.start()
        return self

    def remove(self):
        super().remove()
        # The cable to the bridge goes with the bridge's namespace, which the kernel clears up later.
        wait_for('the cable to be gone', lambda: 'eth0:' not in Path('/proc/self/net/dev').read_text())

    def pod(self, name, **kw):
        """Of agentd's; its Envoy is not started."""
        return self._known(OurPod(self, name, **kw))

    def sidecar(self, name, **kw):
        """With pilot-agent, which is not started."""
        return self._known(SidecarPod(self, name, **kw))

    def plain(self, name):
        """Outside of the mesh."""
        return self._known(Pod(self, name, manifest=False))

    def _known(self, pod):
        self._plugged(pod)
        self._tell(pod)
        return pod

    def _plugged(self, pod):
        self.pods.append(pod)
        pod.netns.ip('route', 'add', 'default', 'via', self.address)
        pod.vip = f'10.96.0.{len(self.pods)}'
        return pod

    def _tell(self, pod):
        """The API, of the pod, its account and its Service."""
        api, ns, labels = self.istiod.api, f'namespaces/{pod.ns}', getattr(pod, 'labels', {'app': pod.name})
        self._tell_service(pod)
        api.apply(f'api/v1/{ns}/pods', pod.name, {
            'metadata': {'labels': labels, 'annotations': {NETNS: pod.netns.path}, 'uid': pod.uid},
            'spec': {'nodeName': 'node-1', 'serviceAccountName': pod.sa, 'containers': [
                {'name': 'app', 'image': 'app', 'ports': [{'containerPort': APP}]}, {'name': 'istio-proxy', 'image': 'proxyv2'}]},
            'status': {'phase': 'Running', 'podIP': pod.ip, 'podIPs': [{'ip': pod.ip}], 'hostIP': self.address,
                       'conditions': [{'type': 'Ready', 'status': 'True'}],
                       'containerStatuses': [{'name': c, 'ready': True, 'image': c, 'imageID': c, 'restartCount': 0, 'state': {'running': {}}}
                                             for c in ('app', 'istio-proxy')]}})
        api.apply(f'apis/discovery.k8s.io/v1/{ns}/endpointslices', pod.name, {
            'metadata': {'labels': {'kubernetes.io/service-name': pod.name}}, 'addressType': 'IPv4',
            'ports': [{'name': 'http', 'port': APP, 'protocol': 'TCP'}], 'endpoints': [
                {'addresses': [pod.ip], 'conditions': {'ready': True}, 'nodeName': 'node-1',
                 'targetRef': {'kind': 'Pod', 'name': pod.name, 'namespace': pod.ns}}]})

    def _tell_service(self, pod):
        """The account and the Service of its name."""
        api, ns = self.istiod.api, f'namespaces/{pod.ns}'
        api.apply(f'api/v1/{ns}/serviceaccounts', pod.sa, {})
        api.apply(f'api/v1/{ns}/services', pod.name, {'spec': {
            'clusterIP': pod.vip, 'clusterIPs': [pod.vip], 'type': 'ClusterIP', 'selector': {'app': pod.name},
            'ports': [{'name': 'http', 'port': SERVICE, 'targetPort': APP, 'protocol': 'TCP'}]}})


def injected(pod, **more):
    """The environment that istiod's injector gives a sidecar: the same for both kinds of pod."""
    return {
        'PROXY_CONFIG': '{}', 'CA_ADDR': f'{HOST}:15012', 'TRUST_DOMAIN': 'cluster.local', 'PILOT_CERT_PROVIDER': 'istiod',
        'ISTIO_META_CLUSTER_ID': 'Kubernetes', 'ISTIO_META_MESH_ID': 'cluster.local', 'ISTIO_META_APP_CONTAINERS': 'app',
        'ISTIO_META_POD_PORTS': json.dumps([{'containerPort': APP, 'protocol': 'TCP'}], separators=(',', ':')),
        'ISTIO_META_WORKLOAD_NAME': pod.name, 'ISTIO_META_INTERCEPTION_MODE': 'REDIRECT', 'ISTIO_CPU_LIMIT': '2',
        'ISTIO_META_OWNER': f'kubernetes://apis/apps/v1/namespaces/{pod.ns}/deployments/{pod.name}', **more}


class _Meshed(Pod):
    @property
    def labels(self):
        return {'app': self.name, 'service.istio.io/canonical-name': self.name, **LABELS}

    def url(self, path='/'):
        """As other pods call its app."""
        return f'http://{self.vip}:{SERVICE}{path}'

    def calls(self, other, path='/'):
        """(status, answer) of a program in this pod that asks the other's app; the app says whom its Envoy saw."""
        return self.call(clients.get_json, other.url(path))


class OurPod(_Meshed):
    def __init__(self, node, name, env=None, **kw):
        self.env = env or {}
        super().__init__(node, name, manifest=False, **kw)
        self.manifest(env=injected(self, ISTIO_META_ISTIO_VERSION=node.istiod.version, **self.env))

    @classmethod
    def instead_of(cls, sidecar):
        """The same pod, with its name, address and network, now agentd's."""
        pod = cls.__new__(cls)
        vars(pod).update(vars(sidecar))
        pod.env = {}
        pod.manifest(env=injected(pod, ISTIO_META_ISTIO_VERSION=pod.node.istiod.version))
        return pod

    def manifest(self, **fields):
        self.write_token()
        self.write_manifest(labels=self.labels, **fields)

    @property
    def xds(self):
        return self.mount / 'XDS'


class SidecarPod(_Meshed):
    """pilot-agent, its Envoy and iptables' rules, as istio-init and the container istio-proxy bring them."""

    def __init__(self, node, name, env=None, **kw):
        super().__init__(node, name, manifest=False, **kw)
        self.programs = programs(node.istiod.version)
        self.env = {**injected(self, **(env or {})), 'POD_NAME': name, 'POD_NAMESPACE': self.ns, 'SERVICE_ACCOUNT': self.sa,
                    'INSTANCE_IP': self.ip, 'HOST_IP': node.address, 'ISTIO_META_NODE_NAME': 'node-1', 'PATH': os.environ['PATH']}
        self._files = self.dir / 'files'
        for folder in 'podinfo', 'secrets/tokens', 'secrets/istio':
            (self._files / folder).mkdir(parents=True)
        (self._files / 'hosts').write_text((node.dir / 'hosts').read_text())
        (self._files / 'podinfo/labels').write_text(''.join(f'{k}={json.dumps(v)}\n' for k, v in self.labels.items()))
        (self._files / 'podinfo/annotations').write_text('')
        self.write_token()
        self.write_root()

    def write_token(self, text=None, **claims):
        new = self._files / 'secrets/tokens/new'
        new.write_text(self.token(**claims) if text is None else text)
        new.rename(new.with_name('istio-token'))

    def write_root(self):
        """As the kubelet mounts the ConfigMap."""
        new = self._files / 'secrets/istio/new'
        new.write_text(self.node.istiod.root_file.read_text())
        new.rename(new.with_name('root-cert.pem'))

    def redirect(self):
        """istio-init."""
        sh(*self.netns.command(self.programs / 'pilot-agent', 'istio-iptables', '-p', 15001, '-z', 15006, '-u', 1337, '-m', 'REDIRECT',
                               '-i', '*', '-x', '', '-b', '*', '-d', '15090,15021,15020'))
        return self

    def start_envoy(self):
        self._starts += 1
        root = self.dir / f'root{self._starts}'
        root.mkdir()
        self.envoy = Process(self.netns.command(
            'unshare', '--mount', '--propagation', 'unchanged', HERE / 'container', root, self._files, self.programs, envoy_binary(),
            '/usr/local/bin/pilot-agent', 'proxy', 'sidecar', '--domain', f'{self.ns}.svc.cluster.local',
            '--proxyLogLevel=warning', '--proxyComponentLogLevel=misc:error', '--log_output_level=default:info'),
            self.dir / 'envoy.log', self.cgroup, env=self.env)
        return self

    @property
    def xds(self):
        return f'/proc/{self.envoy.pid}/root/etc/istio/proxy/XDS'
