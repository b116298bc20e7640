"""Objects for the API server: workloads as people write them, and all of them fit for Pod Security `restricted`."""
from . import images

NAMESPACE = 'demo'
MESHED = {'inject.istio.io/templates': 'agentd'}
PORT = 8080
SERVE = f'echo "$HOSTNAME" >/tmp/index.html; exec httpd -f -p {PORT} -h /tmp'
RESTRICTED = {'runAsNonRoot': True, 'runAsUser': 1000, 'allowPrivilegeEscalation': False,
              'capabilities': {'drop': ['ALL']}, 'seccompProfile': {'type': 'RuntimeDefault'}}


def namespace(name=NAMESPACE, level='restricted', **labels):
    return {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name, 'labels': {
        'pod-security.kubernetes.io/enforce': level, 'istio-injection': 'enabled', **labels}}}


def strict(name=NAMESPACE):
    return {'apiVersion': 'security.istio.io/v1', 'kind': 'PeerAuthentication',
            'metadata': {'name': 'default', 'namespace': name}, 'spec': {'mtls': {'mode': 'STRICT'}}}


def container(script='exec sleep infinity', name='app', **more):
    return {'name': name, 'image': images.APP, 'command': ['sh', '-c', f'trap "exit 0" TERM; {script}'],
            'securityContext': RESTRICTED, **more}


def spec(script='exec sleep infinity', **more):
    return {'terminationGracePeriodSeconds': 3, 'containers': [container(script)], **more}


def template(name, script='exec sleep infinity', annotations=None, labels=None, **more):
    """A pod of the mesh, unless the annotations say otherwise."""
    return {'metadata': {'labels': {'app': name, **(labels or {})},
                         'annotations': MESHED if annotations is None else annotations},
            'spec': spec(script, **more)}


def _meta(name):
    return {'name': name, 'namespace': NAMESPACE}


def pod(name, script='exec sleep infinity', **more):
    made = template(name, script, **more)
    return {'apiVersion': 'v1', 'kind': 'Pod', **made, 'metadata': {**_meta(name), **made['metadata']}}


def light(name, replicas):
    """Pods that agentd serves as any other, and in which no Envoy is: those cost 50 MB each."""
    volume = {'name': 'agentd', 'csi': {'driver': 'agentd.node.mesh', 'readOnly': True}}
    made = workload('Deployment', name, replicas=replicas, annotations={'sidecar.istio.io/inject': 'false'})
    mounts = [{'name': 'agentd', 'mountPath': '/etc/istio/proxy', 'readOnly': True}]
    made['spec']['template']['spec'].update(volumes=[volume], containers=[container(volumeMounts=mounts)])
    return made


def into(space, *objects):
    """The same in another namespace."""
    return [{**o, 'metadata': {**o['metadata'], 'namespace': space}} for o in objects]


def workload(kind, name, script='exec sleep infinity', replicas=1, annotations=None, **more):
    return {'apiVersion': 'apps/v1', 'kind': kind, 'metadata': _meta(name), 'spec': {
        'replicas': replicas, 'selector': {'matchLabels': {'app': name}}, **more,
        'template': template(name, script, annotations)}}


def service(name, **more):
    return {'apiVersion': 'v1', 'kind': 'Service', 'metadata': _meta(name), 'spec': {
        'selector': {'app': name}, 'ports': [{'name': 'http', 'port': 80, 'targetPort': PORT}], **more}}


def job(name, script, annotations=None, **more):
    return {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': _meta(name), 'spec': {
        'backoffLimit': 0, 'template': template(name, script, annotations, restartPolicy='Never'), **more}}


def pair(annotations=None):
    """A server behind a Service, and who asks it."""
    return [workload('Deployment', 'web', SERVE, annotations=annotations), service('web'),
            workload('Deployment', 'client', annotations=annotations)]
