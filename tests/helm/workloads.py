"""Workloads for two injectors; same.py has what is no difference between their results."""
import json

from .test_injection import PODS, PROBED, RESTRICTED, SCRAPED, pod

SIDE = {'name': 'side', 'image': 'x', 'securityContext': RESTRICTED, 'restartPolicy': 'Always',
        'startupProbe': {'httpGet': {'port': 7073, 'path': '/'}}, 'ports': [{'containerPort': 7073, 'protocol': 'UDP'}]}
GRPC = {'name': 'grpc', 'image': 'x', 'ports': [{'containerPort': 7070, 'name': 'grpc', 'hostPort': 1234}],
        'livenessProbe': {'grpc': {'port': 7071, 'service': 's'}}, 'readinessProbe': {'tcpSocket': {'port': 'grpc'}},
        'lifecycle': {'postStart': {'tcpSocket': {'port': 7072}}, 'preStop': {'httpGet': {'port': 'grpc', 'host': 'else.example'}}}}


def own(**more):
    """A pod's own istio-proxy."""
    return pod(containers=[{'name': 'istio-proxy', 'image': 'auto', **more}])


def config(text, **annotations):
    return pod({'proxy.istio.io/config': text, **annotations})


def owned(kind, name, api='apps/v1', **labels):
    p = pod(labels=labels)
    p['metadata']['ownerReferences'][0].update(kind=kind, name=name, apiVersion=api)
    return p


def workload(kind, api='apps/v1', name='w', namespace='demo', **annotations):
    p = pod(annotations)
    selector = {'selector': {'matchLabels': {'app': 'w'}}} if kind != 'ReplicationController' and kind != 'Job' else {}
    if kind == 'StatefulSet':
        selector['serviceName'] = 's'
    template = {'metadata': {'labels': {'app': 'w'}, 'annotations': p['metadata']['annotations']}, 'spec': p['spec']}
    meta = {'name': name, **({'namespace': namespace} if namespace else {})}
    return {'apiVersion': api, 'kind': kind, 'metadata': meta, 'spec': {**selector, 'template': template}}


T = 'traffic.sidecar.istio.io/'
S = 'sidecar.istio.io/'
R = 'readiness.status.sidecar.istio.io/'

CASES = {
    **PODS,
    'scraped': pod(SCRAPED), 'scraped-in-dots': pod({'prometheus.io.scrape': 'true', 'prometheus.io/port': '9091'}),
    'not-scraped': pod({'prometheus.io/scrape': 'false', 'prometheus.io/port': '9091'}),
    'not-merged': pod({**SCRAPED, 'prometheus.istio.io/merge-metrics': 'false'}),
    'targets': pod({'prometheus.istio.io/scrape-targets': ' 9090:/a , 9091,,9092:'}),
    'probed': pod(containers=[PROBED]), 'grpc': pod(containers=[GRPC]), 'side': pod(initContainers=[SIDE]),
    'probed-init': pod({'agentd.node.mesh/redirect': 'istio-init'}, containers=[PROBED, GRPC], initContainers=[SIDE]),
    'probed-off': pod({'agentd.node.mesh/redirect': 'istio-init', S + 'rewriteAppHTTPProbers': 'false'}, containers=[PROBED]),
    'redirect-none': pod({'agentd.node.mesh/redirect': 'none'}),
    'status-port': pod({'status.sidecar.istio.io/port': '16020'}), 'no-status-port': pod({'status.sidecar.istio.io/port': '0'}),
    'cpu-100m': pod({S + 'proxyCPULimit': '100m'}), 'cpu-2.5': pod({S + 'proxyCPULimit': '2.5'}),
    'memory': pod({S + 'proxyMemory': '64Mi', S + 'proxyMemoryLimit': '1e9'}),
    'level': pod({S + 'logLevel': 'debug'}), 'components': pod({S + 'componentLogLevel': ''}),
    'image-type': pod({S + 'proxyImageType': 'distroless'}), 'image-default': pod({S + 'proxyImageType': 'default'}),
    'image-in-config': config('image: {imageType: debug}'),
    'native': pod({S + 'nativeSidecar': 'true'}), 'classic': pod({S + 'nativeSidecar': 'false'}),
    'readiness': pod({R + 'initialDelaySeconds': '7', R + 'periodSeconds': '8', R + 'failureThreshold': '9'}),
    'concurrency-0': config('concurrency: 0'), 'drain': config('drainDuration: 90s\nterminationDrainDuration: 10s'),
    'flush': config('fileFlushInterval: 2.5s\nfileFlushMinSizeKb: 64'),
    'metadata': config('proxyMetadata:\n  ISTIO_META_X: "true"\n  ISTIO_DELTA_XDS: "false"'),
    'hold-classic': config('holdApplicationUntilProxyStarts: true', **{S + 'nativeSidecar': 'false'}),
    'interception-none': config('interceptionMode: NONE'),
    'in-json': config(json.dumps({'concurrency': 5, 'proxyStatsMatcher': {'inclusionPrefixes': ['a']}})),
    'ports': pod({T + 'excludeInboundPorts': '1, 2', T + 'includeInboundPorts': '80', T + 'excludeOutboundPorts': '3306'}),
    'ranges': pod({T + 'includeOutboundIPRanges': '10.0.0.0/8', T + 'excludeOutboundIPRanges': '10.1.0.0/16,fd00::/8'}),
    'interfaces': pod({T + 'excludeInterfaces': 'eth1'}),
    'stats': pod({S + 'statsInclusionPrefixes': 'a,b', S + 'extraStatTags': 'x'}),
    'user-volume': pod({S + 'userVolume': '{"b": {"secret": {"secretName": "own"}}, "a": {"emptyDir": {}}}',
                        S + 'userVolumeMount': '{"b": {"mountPath": "/etc/own", "readOnly": true}}'}),
    'user-list': pod({S + 'userVolume': '[{"name": "b", "emptyDir": {}}]', S + 'userVolumeMount': '[{"name": "b", "mountPath": "/etc/own"}]'}),
    'grace': pod(terminationGracePeriodSeconds=7), 'grace-0': pod(terminationGracePeriodSeconds=0),
    'secrets': pod(imagePullSecrets=[{'name': 'mine'}]), 'volumes': pod(volumes=[{'name': 'z', 'emptyDir': {}}]),
    'runtime': pod(runtimeClassName='runc'),
    'canonical': pod(labels={'service.istio.io/canonical-name': 'c', 'service.istio.io/canonical-revision': 'r'}),
    'recommended': pod(labels={'app.kubernetes.io/name': 'n', 'app.kubernetes.io/version': '7'}),
    'name-of-63': {**pod(labels={'app': ''}), 'kind': 'Pod'}, 'workload-name': pod(labels={'service.istio.io/workload-name': 'wn'}),
    'network': pod(labels={'topology.istio.io/network': 'n2'}), 'tls-off': pod(labels={'security.istio.io/tlsMode': 'disabled'}),
    'quoted': pod({S + 'x': 'a "b"\n\t{{ .Y }} \u20ac', 'note': '"'}),
    'rev': pod({'istio.io/rev': 'canary'}), 'default-container': pod({'kubectl.kubernetes.io/default-logs-container': ''}),
    'own-resources': own(resources={'limits': {'cpu': '3'}}), 'own-args': own(args=['-x'], lifecycle={'preStop': {'exec': {'command': ['y']}}}),
    'own-env': own(env=[{'name': 'DISABLE_ENVOY', 'value': 'no'}, {'name': 'MORE', 'value': '1'}], ports=[{'containerPort': 7, 'name': 'q'}],
                   volumeMounts=[{'name': 'z', 'mountPath': '/z'}]),
    'own-image': own(image='mine/envoy:1.2.3', securityContext={'runAsUser': 5}),
    'stateful': owned('StatefulSet', 'db'), 'bare-set': owned('ReplicaSet', 'web-x', **{'pod-template-hash': ''}),
    'rollout': owned('ReplicaSet', 'web-abc', 'argoproj.io/v1alpha1', **{'rollouts-pod-template-hash': 'abc'}),
    'config-owner': owned('ReplicationController', 'web-1', 'v1', deploymentconfig='dc'),
    'cron-owner': owned('Job', 'tick-28412345', 'batch/v1'), 'job-owner': owned('Job', 'tick-1', 'batch/v1'),
    **{kind: workload(kind) for kind in ('Deployment', 'DaemonSet', 'StatefulSet', 'ReplicaSet')},
    'Job': workload('Job', 'batch/v1'), 'ReplicationController': workload('ReplicationController', 'v1'),
    'no-namespace': workload('Deployment', namespace=''), 'long': workload('Deployment', name='n' * 62 + '-x'),
    'cut-at-a-dot': owned('StatefulSet', 'n' * 62 + '.x', app=''), 'cut-at-hyphens': owned('StatefulSet', 'n' * 61 + '--x', app=''),
    'host-network': pod(hostNetwork=True), 'not-wanted': pod({S + 'inject': 'false'}), 'label-no': pod({S + 'inject': 'true'}, {S + 'inject': 'false'}),
}

REFUSED = {
    'TPROXY': pod({S + 'interceptionMode': 'TPROXY'}), 'mode': pod({S + 'interceptionMode': 'x'}),
    'status': pod({'status.sidecar.istio.io/port': '70000'}), 'range': pod({T + 'includeOutboundIPRanges': '10.0.0.0/33'}),
    'port': pod({T + 'excludeInboundPorts': '80,x'}), 'out': pod({T + 'includeOutboundPorts': 'x'}),
    'virt': pod({T + 'kubevirtInterfaces': 'eth1'}), 'merge': pod({'prometheus.istio.io/merge-metrics': 'maybe'}),
    'cpu': pod({S + 'proxyCPU': 'much'}), 'period': pod({R + 'periodSeconds': '-1'}),
    'duration': config('drainDuration: soon'), 'yaml': config('a: ['),
    'plane': config('discoveryAddress: evil.example:15012'), 'threads': config('concurrency: 100000'),
    'template': pod({'inject.istio.io/templates': 'gateway'}), 'sandbox': pod(runtimeClassName='kata-qemu'),
    'volume': pod(volumes=[{'name': 'agentd', 'emptyDir': {}}]), 'user': pod({S + 'userVolume': '[1]'}),
}
