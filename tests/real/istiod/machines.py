"""A mesh with machines: istiod's WorkloadGroups and WorkloadEntries are objects of the stand-in API, beside its files."""
import contextlib
import subprocess
import urllib.error

import yaml

from tests.e2e.pod import Pod
from tests.e2e.run import wait_for
from tests.istiod import registration

from .istiod import HOST, SYSTEM, programs
from .world import World

NETWORKING = 'apis/networking.istio.io/v1/namespaces/demo'
# The ConfigMap `istio`, as `istioctl install` leaves it.
MESH = {'defaultConfig': {'discoveryAddress': f'{HOST}:15012'}, 'defaultProviders': {'metrics': ['prometheus']},
        'enablePrometheusMerge': True, 'rootNamespace': SYSTEM, 'trustDomain': 'cluster.local'}
FILES = 'cluster.env', 'mesh.yaml', 'hosts', 'istio-token', 'root-cert.pem'


class Machines(World):
    def prepared(self, istiod):
        istiod.mesh({'configSources': [{'address': f'fs://{istiod.dir}/config'}, {'address': 'k8s://'}]})
        for plural in 'workloadgroups', 'workloadentries':
            istiod.api.apply('apis/apiextensions.k8s.io/v1/customresourcedefinitions', f'{plural}.networking.istio.io', {})
        istiod.api.apply(f'api/v1/namespaces/{SYSTEM}/configmaps', 'istio', {'data': {'mesh': yaml.safe_dump(MESH)}})
        istiod.api.apply('api/v1/namespaces/demo/configmaps', 'istio-ca-root-cert',
                         {'data': {'root-cert.pem': istiod.root_file.read_text()}})
        return istiod

    def group(self, name, **spec):
        """A WorkloadGroup of namespace demo; in the form of tests/istiod/registration.py, too."""
        self.istiod.api.apply(f'{NETWORKING}/workloadgroups', name, {'spec': spec})
        return {'name': name, 'namespace': 'demo', 'template': spec.get('template', {}), **spec.get('metadata', {})}

    def entries(self):
        """{name: WorkloadEntry}"""
        return {o['metadata']['name']: o for o in self.istiod.api.get(f'{NETWORKING}/workloadentries')['items']}

    def forget(self, name):
        with contextlib.suppress(urllib.error.HTTPError):
            self.istiod.api.delete(f'{NETWORKING}/workloadentries', name)

    def machine(self, name):
        """Its network, its cgroup and its Service; no manifest, and no pod that the API knows."""
        pod = self._plugged(Pod(self, name, manifest=False))
        self._tell_service(pod)
        return pod

    def istioctl(self, group, folder):
        """The five files of `istioctl x workload entry configure`."""
        file = self.dir / 'group.yaml'
        file.write_text(yaml.safe_dump({'apiVersion': 'networking.istio.io/v1', 'kind': 'WorkloadGroup',
                                        'metadata': {'name': group, 'namespace': 'demo'},
                                        'spec': self.istiod.api.get(f'{NETWORKING}/workloadgroups/{group}')['spec']}))
        r = subprocess.run([programs(self.istiod.version) / 'istioctl', '--kubeconfig', self.istiod.dir / 'kubeconfig',
                            'x', 'workload', 'entry', 'configure', '-f', file, '-o', folder, '--clusterID', 'Kubernetes',
                            '--autoregister', '--ingressIP', self.address], text=True, capture_output=True, timeout=120, check=False)
        assert r.returncode == 0, r.stderr
        assert sorted(f.name for f in folder.iterdir()) == sorted(FILES)
        return folder

    def installed(self, pod, folder):
        """agentctl manifest, and what it says is left to do."""
        made = self.agentd.ctl('manifest', '--from', folder, '--to', self.agentd.manifests, '--name', pod.name)
        pod.uid = made['manifest'].rpartition('/')[2].removesuffix('.yaml')
        (self.agentd.manifests / pod.uid / 'cgroup').write_text(pod.cgroup.below_root() + '\n')
        self.agentd.plane = yaml.safe_load(made['control_plane'])[0]
        return made


def seen(entry):
    """A WorkloadEntry of the API, as tests/istiod/registration.py makes one."""
    meta = entry['metadata']
    annotations = {k: v for k, v in meta['annotations'].items()
                   if k not in (registration.CONTROLLER, registration.CONNECTED, registration.DISCONNECTED)}
    owner = {k: meta['ownerReferences'][0][k] for k in ('kind', 'name', 'controller')}
    return {'name': meta['name'], 'namespace': meta['namespace'], 'annotations': annotations,
            'spec': {**entry['spec'], 'labels': entry['spec'].get('labels', {})}, 'owner': owner}


def healthy(entry):
    """Its condition: (status, message, when), or None."""
    for c in (entry or {}).get('status', {}).get('conditions', ()):
        if c['type'] == 'Healthy':
            return c['status'], c.get('message', ''), c['lastProbeTime']
    return None


def wait_health(world, name, status):
    return wait_for(f'{name} to be Healthy {status}', lambda: (c := healthy(world.entries().get(name))) and c[0] == status and c)
