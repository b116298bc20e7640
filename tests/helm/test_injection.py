"""The injection template in istiod's own chart and its own injector, native and classic."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.injected import attributes_of, proxy_of

from .chart import KUBERNETES, TOP, helm, only, render, validate

INJECT = TOP / 'build' / 'gobin' / 'inject'
RESTRICTED = {'runAsNonRoot': True, 'runAsUser': 1000, 'allowPrivilegeEscalation': False,
              'capabilities': {'drop': ['ALL']}, 'seccompProfile': {'type': 'RuntimeDefault'}}


def istio():
    """Its sources."""
    r = subprocess.run(['go', 'list', '-m', '-f', '{{.Dir}}', 'istio.io/istio'], text=True, capture_output=True,
                       check=True, cwd=TOP / 'tests' / 'helm' / 'inject', env={**os.environ, 'GOFLAGS': '-mod=readonly'})
    return Path(r.stdout.strip())


def istiod_chart():
    return str(istio() / 'manifests/charts/istio-control/istio-discovery')


class Istiod:
    """istiod's chart with the values that ours has for it, and what its injector makes of pods."""

    def __init__(self, directory, version='1.36', values=(), more=()):
        ours = directory / 'from-agentd.yaml'
        text = next(o['data']['values.yaml'] for (k, n), o in render(version, values=values).items()
                    if k == 'ConfigMap' and n.endswith('-injection'))
        ours.write_text(text)
        its = directory / 'own.yaml'
        its.write_text(yaml.safe_dump({'global': {'hub': 'registry.istio.io/release', 'tag': '1.29.1'}}))
        rendered = helm('template', f'--kube-version={version}.0', '--namespace=istio-system', '-f', its, '-f', ours,
                        *more, '--show-only=templates/istiod-injector-configmap.yaml', chart=istiod_chart()).stdout
        self._dir = directory
        for key, value in yaml.safe_load(rendered)['data'].items():
            (directory / key).write_text(value)

    def run(self, *pods, native=True, flags=()):
        r = subprocess.run([INJECT, '-config', self._dir / 'config', '-values', self._dir / 'values', *flags],
                           input='\n'.join(map(json.dumps, pods)), text=True, capture_output=True, timeout=60,
                           env={**os.environ, 'ENABLE_NATIVE_SIDECARS': str(native).lower()}, check=False)
        assert r.returncode == 0, r.stderr
        return [json.loads(line) for line in r.stdout.splitlines()]

    def inject(self, pod, native=True):
        [r] = self.run(pod, native=native)
        assert 'error' not in r, r['error']
        assert not r.get('forbidden'), r['forbidden']
        return r['pod']


@pytest.fixture(name='istiod', scope='module')
def fixture_istiod(tmp_path_factory):
    return Istiod(tmp_path_factory.mktemp('istiod'))


def pod(annotations=(), labels=(), containers=(), **spec):
    """A pod of a Deployment that Pod Security `restricted` allows."""
    app = {'name': 'app', 'image': 'example/app', 'securityContext': RESTRICTED,
           'ports': [{'containerPort': 8080, 'name': 'http'}, {'containerPort': 9090}],
           'readinessProbe': {'httpGet': {'path': '/healthy', 'port': 8080}}}
    return {'apiVersion': 'v1', 'kind': 'Pod',
            'metadata': {'generateName': 'web-5d4f8b9c7d-', 'namespace': 'demo',
                         'labels': {'app': 'web', 'version': 'v2', 'pod-template-hash': '5d4f8b9c7d', **dict(labels)},
                         'annotations': {'inject.istio.io/templates': 'agentd', **dict(annotations)},
                         'ownerReferences': [{'apiVersion': 'apps/v1', 'kind': 'ReplicaSet', 'name': 'web-5d4f8b9c7d',
                                              'uid': '1', 'controller': True}]},
            'spec': {'serviceAccountName': 'web', 'containers': [app, *containers], **spec}}


PODS = {
    'plain': pod(),
    'no-labels': {**pod(), 'metadata': {'name': 'bare', 'namespace': 'demo', 'annotations': {'inject.istio.io/templates': 'agentd'}}},
    'sidecars': pod(containers=[{'name': 'second', 'image': 'x', 'securityContext': RESTRICTED, 'ports': [{'containerPort': 7070}]}],
                    initContainers=[{'name': 'setup', 'image': 'x', 'securityContext': RESTRICTED}],
                    volumes=[{'name': 'data', 'emptyDir': {}}]),
    'annotated': pod({
        'sidecar.istio.io/proxyCPU': '50m', 'sidecar.istio.io/proxyCPULimit': '1500m', 'sidecar.istio.io/proxyMemoryLimit': '1Gi',
        'sidecar.istio.io/logLevel': 'info', 'sidecar.istio.io/componentLogLevel': 'http:debug',
        'traffic.sidecar.istio.io/excludeOutboundPorts': '3306', 'agentd.node.mesh/redirectPolicy': 'permissive',
        'readiness.status.sidecar.istio.io/periodSeconds': '3', 'kubectl.kubernetes.io/default-container': 'other',
        'note': 'a "quoted" note\nof two lines: {{ $x }}',
        'proxy.istio.io/config': 'concurrency: 3\ndrainDuration: 20s\nproxyMetadata:\n  ISTIO_META_DNS_CAPTURE: "true"\n  SECRET_TTL: 2h\n'}),
    'custom': pod(containers=[{'name': 'istio-proxy', 'image': 'auto', 'resources': {'requests': {'cpu': '7m'}}}]),
    'hold': pod({'proxy.istio.io/config': 'holdApplicationUntilProxyStarts: true'}),
    'image': pod({'sidecar.istio.io/proxyImage': 'registry.example:5000/proxyv2:1.28.3-distroless'}),
}


@pytest.mark.parametrize('native', [True, False], ids=['native', 'classic'])
@pytest.mark.parametrize('name', PODS)
def test_the_pod_is_valid_and_restricted(istiod, name, native):
    result = istiod.inject(PODS[name], native)
    for version in KUBERNETES[1:] if native else KUBERNETES:
        validate(result, version)
    proxy = proxy_of(result)
    assert (proxy in result['spec'].get('initContainers', ())) == native == (proxy.get('restartPolicy') == 'Always')
    names = {c['name'] for k in ('initContainers', 'containers') for c in result['spec'].get(k, ())}
    assert not names & {'istio-init', 'istio-validation'}
    mounts = {m['mountPath']: m for m in proxy['volumeMounts']}
    for path in ('/etc/istio/proxy', '/var/run/secrets/workload-spiffe-uds'):
        assert mounts[path]['name'] == 'agentd' and mounts[path]['readOnly']
    assert 'serviceAccountToken' not in json.dumps(result['spec'].get('volumes'))


@pytest.mark.parametrize('native', [True, False], ids=['native', 'classic'])
def test_a_pod_that_is_refused_by_pod_security_is_noticed(istiod, native):
    """The test above can fail."""
    bad = pod()
    bad['spec']['containers'][0]['securityContext'] = {'privileged': True}
    [r] = istiod.run(bad, native=native)
    assert any('privileged' in f for f in r['forbidden'])


STATUS_PORT = 15020
SCRAPED = {'prometheus.io/scrape': 'true', 'prometheus.io/port': '9090', 'prometheus_io_path': '/own'}


def of_envoy(result, key):
    """What the injector told pilot-agent by the environment; None: nothing."""
    return next((json.loads(e['value']) for e in proxy_of(result).get('env', ()) if e['name'] == key), None)


@pytest.mark.parametrize('native', [True, False], ids=['native', 'classic'])
def test_metrics_are_merged_as_the_mesh_says(istiod, tmp_path, native):
    """The volume has what the injector puts into an environment, also when the pod comes a second time."""
    key = 'ISTIO_PROMETHEUS_ANNOTATIONS'
    once = istiod.inject(pod(SCRAPED), native)
    assert once['metadata']['annotations'] | {
        'prometheus.io/scrape': 'true', 'prometheus.io/port': str(STATUS_PORT), 'prometheus.io/path': '/stats/prometheus'
    } == once['metadata']['annotations']
    told = json.loads(attributes_of(once)[key])
    assert told == {'scrape': 'true', 'port': '9090', 'path': '/own'} == {k: v for k, v in of_envoy(once, key).items() if v}
    assert attributes_of(istiod.inject(once, native))[key] == attributes_of(once)[key]
    several = json.loads(attributes_of(istiod.inject(pod({'prometheus.istio.io/scrape-targets': '9090:/a, 9091'}), native))[key])
    assert several == {'targets': [{'port': '9090', 'path': '/a'}, {'port': '9091', 'path': '/metrics'}]}
    assert key not in attributes_of(istiod.inject(pod(), native))
    for off in ({'prometheus.istio.io/merge-metrics': 'false'}, {'prometheus.io/scrape': 'false'}):
        result = istiod.inject(pod({**SCRAPED, **off}), native)
        assert key not in attributes_of(result) and result['metadata']['annotations']['prometheus.io/port'] == '9090'


PROBED = {'name': 'probed', 'image': 'x', 'securityContext': RESTRICTED, 'ports': [{'containerPort': 7070, 'name': 'http'}],
          'startupProbe': {'tcpSocket': {'port': 'http'}}, 'livenessProbe': {'grpc': {'port': 7071}, 'timeoutSeconds': 3},
          'readinessProbe': {'httpGet': {'port': 'http', 'path': '/ready', 'scheme': 'HTTPS'}, 'timeoutSeconds': 90},
          'lifecycle': {'preStop': {'httpGet': {'port': 7072, 'path': '/stop'}}, 'postStart': {'exec': {'command': ['x']}}}}


LOST = {'name': 'lost', 'image': 'x', 'securityContext': RESTRICTED, 'ports': [{'containerPort': 7073, 'name': 'http'}],
        'startupProbe': {'tcpSocket': {'port': 'nobody'}}, 'livenessProbe': {'httpGet': {'port': 'http'}},
        'readinessProbe': {'httpGet': {'port': STATUS_PORT, 'path': '/app-health/lost/readyz'}}}


def test_probes_are_rewritten_where_rules_of_istios_redirect(istiod, tmp_path):
    key = 'ISTIO_KUBE_APP_PROBERS'
    before = pod(containers=[PROBED, LOST])
    left = istiod.inject(before)
    assert key not in attributes_of(left) and of_envoy(left, key) is None
    assert [c['readinessProbe'] for c in left['spec']['containers']] == [c['readinessProbe'] for c in before['spec']['containers']]
    for i, result in ((istiod, istiod.inject(pod({'agentd.node.mesh/redirect': 'istio-init'}, containers=[PROBED, LOST]))),
                      (cni := Istiod(tmp_path, values=['istio-cni']), cni.inject(before))):
        probed = next(c for c in result['spec']['containers'] if c['name'] == 'probed')
        assert probed['livenessProbe']['httpGet'] == {'path': '/app-health/probed/livez', 'port': STATUS_PORT}
        told = json.loads(attributes_of(result)[key])
        assert told['/app-health/probed/startupz'] == {'tcpSocket': {'port': 7070}}
        assert told['/app-health/probed/livez']['grpc']['port'] == 7071 and told['/app-health/probed/livez']['timeoutSeconds'] == 3
        assert told['/app-health/probed/readyz'] == {'httpGet': {'port': 7070, 'path': '/ready', 'scheme': 'HTTPS'}}  # 90 s: the kubelet's
        assert told['/app-lifecycle/probed/prestopz'] == {'httpGet': {'port': 7072, 'path': '/stop'}}
        assert [k for k in told if '/lost/' in k] == ['/app-health/lost/livez']  # a port that is none, and one that is Envoy's
        theirs = of_envoy(result, key)
        assert theirs['/app-health/probed/readyz'].pop('timeoutSeconds') == 90 and told == theirs
        again = i.inject(result)
        assert json.loads(attributes_of(again)[key]) == told
    for mode, wanted in ('istio-init', 'false'), ('none', 'true'), ('ebpf', 'true'):
        off = istiod.inject(pod({'agentd.node.mesh/redirect': mode, 'sidecar.istio.io/rewriteAppHTTPProbers': wanted}))
        assert key not in attributes_of(off) and str(STATUS_PORT) not in json.dumps(off['spec']['containers'][0]), mode


def test_volumes_of_the_users(istiod):
    result = istiod.inject(pod({'sidecar.istio.io/userVolume': '{"certs": {"secret": {"secretName": "own"}}}',
                                'sidecar.istio.io/userVolumeMount': '{"certs": {"mountPath": "/etc/own", "readOnly": true}}'}))
    validate(result, '1.36')
    assert {'name': 'certs', 'secret': {'secretName': 'own'}} in result['spec']['volumes']
    assert {'name': 'certs', 'mountPath': '/etc/own', 'readOnly': True} in proxy_of(result)['volumeMounts']


def test_what_envoy_writes(istiod, tmp_path):
    def args(i, **config):
        given = proxy_of(i.inject(pod({'proxy.istio.io/config': json.dumps(config)})))['args']
        return dict(zip(given, given[1:]))
    assert args(istiod)['--file-flush-interval-msec'] == '1000'
    bootstrap = (istio() / 'tools/packaging/common/envoy_bootstrap.json').read_text()
    assert args(istiod)['--log-format'] == json.loads(re.search(r'"text_format": (".*")', bootstrap)[1])
    got = args(Istiod(tmp_path, more=['--set=global.logAsJson=true']), fileFlushInterval='2.5s', fileFlushMinSizeKb=64)
    assert got['--file-flush-interval-msec'] == '2500' and got['--file-flush-min-size-kb'] == '64'
    assert json.loads(got['--log-format']) == json.loads(re.search(r'"json_format": ({.*?})', bootstrap, re.DOTALL)[1])


def test_labels_and_status(istiod):
    meta = istiod.inject(pod(), True)['metadata']
    assert meta['labels'] | {'security.istio.io/tlsMode': 'istio', 'service.istio.io/canonical-name': 'web',
                             'service.istio.io/canonical-revision': 'v2'} == meta['labels']
    assert json.loads(meta['annotations']['sidecar.istio.io/status'])['volumes'] == ['agentd']
    assert meta['annotations']['kubectl.kubernetes.io/default-container'] == 'app'
    meta = istiod.inject(PODS['annotated'], True)['metadata']
    assert meta['annotations']['kubectl.kubernetes.io/default-container'] == 'other'


def test_envoy_is_started_as_pilot_agent_does(istiod):
    """Beside what e2e tests start it with (tests/e2e/pod.py)."""
    text = (TOP / 'tests' / 'e2e' / 'pod.py').read_text()
    body = text[text.index('envoy_binary(), \'-c\''):]
    tested = set(re.findall(r"'(-{1,2}[a-z][a-z0-9-]*)'", body[:body.index('*more')]))
    proxy = proxy_of(istiod.inject(pod()))
    assert proxy['command'] == ['/usr/local/bin/envoy'] and proxy['workingDir'] == '/'
    assert tested - {'--concurrency'} <= set(proxy['args']), tested - set(proxy['args'])
    assert proxy['args'][:2] == ['-c', './etc/istio/proxy/envoy-rev.json']
    assert all(isinstance(a, str) for a in proxy['args'])


def test_envoy_knows_its_pods_address(istiod):
    """As pilot-agent's does, which is started when the pod has one; agentd's bootstrap is written before."""
    proxy = proxy_of(istiod.inject(pod()))
    node = json.loads(proxy['args'][proxy['args'].index('--config-yaml') + 1])['node']
    fields = {e['name']: e['valueFrom']['fieldRef']['fieldPath'] for e in proxy['env'] if 'valueFrom' in e}
    assert set(re.findall(r'\$\((\w+)\)', json.dumps(node))) == set(fields)
    assert fields['INSTANCE_IP'] == 'status.podIP' and fields['INSTANCE_IPS'] == 'status.podIPs'
    assert node == {'id': 'sidecar~$(INSTANCE_IP)~$(POD_NAME).$(POD_NAMESPACE)~$(POD_NAMESPACE).svc.cluster.local',
                    'metadata': {'INSTANCE_IPS': '$(INSTANCE_IPS)'}}


@pytest.mark.parametrize('name,threads,drain', [('plain', '2', '45'), ('annotated', '3', '20'), ('hold', '2', '45')])
def test_threads_and_drain_time(istiod, name, threads, drain):
    args = proxy_of(istiod.inject(PODS[name]))['args']
    assert args[args.index('--concurrency') + 1] == threads  # ProxyConfig's, else the cores of the limit
    assert args[args.index('--drain-time-s') + 1] == drain


@pytest.mark.parametrize('limit,cores', [('1500m', '2'), ('100m', '1'), ('2', '2'), ('2.5', '3'), ('3000m', '3')])
def test_cores_are_rounded_up(istiod, limit, cores):
    result = istiod.inject(pod({'sidecar.istio.io/proxyCPULimit': limit}))
    args = proxy_of(result)['args']
    assert args[args.index('--concurrency') + 1] == attributes_of(result)['ISTIO_CPU_LIMIT'] == cores


def test_resources(istiod):
    assert proxy_of(istiod.inject(pod()))['resources'] == {
        'requests': {'cpu': '100m', 'memory': '128Mi'}, 'limits': {'cpu': '2', 'memory': '1Gi'}}
    assert proxy_of(istiod.inject(PODS['annotated']))['resources'] == {
        'requests': {'cpu': '50m'}, 'limits': {'cpu': '1500m', 'memory': '1Gi'}}


def test_no_limit_is_all_cores(tmp_path):
    for resources in ('null', '{"limits":null,"requests":null}', '{"limits":{"cpu":null}}'):
        result = Istiod(tmp_path, more=[f'--set-json=global.proxy.resources={resources}']).inject(pod())
        validate(result, '1.36')
        assert '--concurrency' not in proxy_of(result)['args'] and 'ISTIO_CPU_LIMIT' not in attributes_of(result)


def test_the_environment_of_a_pod(istiod):
    got = attributes_of(istiod.inject(PODS['annotated']))
    config = json.loads(got.pop('PROXY_CONFIG'))
    assert config['concurrency'] == 3 and config['drainDuration'] == '20s'  # what is default is left out
    labels = json.loads(got.pop('ISTIO_METAJSON_LABELS'))
    assert labels['app'] == 'web' and labels['security.istio.io/tlsMode'] == 'istio'
    annotations = json.loads(got.pop('ISTIO_METAJSON_ANNOTATIONS'))
    assert annotations['traffic.sidecar.istio.io/excludeOutboundPorts'] == '3306'
    assert annotations['agentd.node.mesh/redirectPolicy'] == 'permissive' and 'note' not in annotations
    assert json.loads(got.pop('ISTIO_META_POD_PORTS')) == [{'name': 'http', 'containerPort': 8080}, {'containerPort': 9090}]
    assert got == {
        'CA_ADDR': 'istiod.istio-system.svc:15012', 'TRUST_DOMAIN': 'cluster.local', 'ISTIO_META_MESH_ID': 'cluster.local',
        'ISTIO_META_CLUSTER_ID': 'Kubernetes', 'ISTIO_META_APP_CONTAINERS': 'app', 'AGENTD_PROBE_PORTS': '8080', 'ISTIO_META_WORKLOAD_NAME': 'web',
        'ISTIO_META_OWNER': 'kubernetes://apis/apps/v1/namespaces/demo/deployments/web',
        'ISTIO_META_ISTIO_VERSION': '1.29.1', 'ISTIO_CPU_LIMIT': '2', 'ISTIO_META_DNS_CAPTURE': 'true', 'SECRET_TTL': '2h',
        'ISTIO_INBOUND_INTERCEPTION_MODE': 'REDIRECT', 'ISTIO_SERVICE_CIDR': '*', 'ISTIO_INBOUND_PORTS': '*'}


def test_where_the_kubelet_asks(istiod):
    """All kinds of probes and hooks, by number and by name, of all containers; not what is Envoy's, or at another host."""
    def ports(containers=(), **spec):
        [r] = istiod.run(pod(containers=containers, **spec))  # Pod Security has more to say about probes of other hosts
        return attributes_of(r['pod']).get('AGENTD_PROBE_PORTS')
    app = {'name': 'more', 'image': 'x', 'securityContext': RESTRICTED, 'ports': [{'containerPort': 7070, 'name': 'grpc'}],
           'startupProbe': {'tcpSocket': {'port': 'grpc'}}, 'readinessProbe': {'grpc': {'port': 7071}},
           'livenessProbe': {'httpGet': {'port': 8080, 'path': '/', 'scheme': 'HTTPS'}},
           'lifecycle': {'postStart': {'httpGet': {'port': 7072, 'path': '/'}}, 'preStop': {'exec': {'command': ['x']}}}}
    sidecar = {'name': 'side', 'image': 'x', 'securityContext': RESTRICTED, 'restartPolicy': 'Always',
               'startupProbe': {'httpGet': {'port': 7073, 'path': '/'}}, 'livenessProbe': {'httpGet': {'port': 15021, 'path': '/'}},
               'readinessProbe': {'tcpSocket': {'port': 'nobody'}},
               'lifecycle': {'preStop': {'httpGet': {'host': 'elsewhere.example', 'port': 7074}}}}
    assert set(ports([app], initContainers=[sidecar]).split(',')) == {'8080', '7070', '7071', '7072', '7073'}
    custom = {'name': 'istio-proxy', 'image': 'auto', 'livenessProbe': {'tcpSocket': {'port': 7075}}}
    assert ports([custom]) == '8080'
    silent = pod()
    del silent['spec']['containers'][0]['readinessProbe']
    assert 'AGENTD_PROBE_PORTS' not in attributes_of(istiod.inject(silent))


def test_networks(istiod, tmp_path):
    def network(i, labels=()):
        return attributes_of(i.inject(pod(labels=labels))).get('ISTIO_META_NETWORK')
    assert network(istiod) is None
    assert network(istiod, {'topology.istio.io/network': 'n2'}) == 'n2'
    assert network(Istiod(tmp_path, values=['everything'])) == 'net1'
    assert network(Istiod(tmp_path, values=['everything'], more=['--set=global.network=n3'])) == 'n3'


def test_a_revision_and_another_mesh(tmp_path):
    i = Istiod(tmp_path, more=['--set=revision=canary', '--set=global.meshID=m', '--set=global.multiCluster.clusterName=c2',
                               '--set=global.proxy.includeIPRanges=10.0.0.0/8', '--set=global.imagePullSecrets={regcred}'])
    result = i.inject(pod())
    got = attributes_of(result)
    assert got['CA_ADDR'] == 'istiod-canary.istio-system.svc:15012' and got['ISTIO_META_MESH_ID'] == 'm'
    assert got['ISTIO_META_CLUSTER_ID'] == 'c2' and got['ISTIO_SERVICE_CIDR'] == '10.0.0.0/8'
    assert result['spec']['imagePullSecrets'] == [{'name': 'regcred'}]


def test_the_image_says_its_version(istiod):
    result = istiod.inject(PODS['image'])
    assert proxy_of(result)['image'] == 'registry.example:5000/proxyv2:1.28.3-distroless'
    assert attributes_of(result)['ISTIO_META_ISTIO_VERSION'] == '1.28.3'
    for image, version in (('x/y:1.27.0@sha256:' + '0' * 64, '1.27.0'), ('host:5000/y', None), ('x/y:latest', None)):
        got = attributes_of(istiod.inject(pod({'sidecar.istio.io/proxyImage': image})))
        assert got.get('ISTIO_META_ISTIO_VERSION') == version


@pytest.mark.parametrize('native', [True, False], ids=['native', 'classic'])
@pytest.mark.parametrize('name', sorted(PODS.keys() - {'custom'}))
def test_twice_is_once(istiod, name, native):
    """Another webhook may have istiod asked again (reinvocationPolicy). What a pod changed itself is lost by that, with
    every template: that is the injector's."""
    once = istiod.inject(PODS[name], native)
    assert istiod.inject(once, native) == once


def test_a_pod_may_change_the_container(istiod):
    for native in (True, False):
        assert proxy_of(istiod.inject(PODS['custom'], native))['resources']['requests']['cpu'] == '7m'


def test_readiness_is_envoys_own(istiod):
    proxy = proxy_of(istiod.inject(PODS['annotated']))
    for probe in ('startupProbe', 'readinessProbe'):
        assert proxy[probe]['httpGet'] == {'path': '/healthz/ready', 'port': 15021}
    assert proxy['readinessProbe']['periodSeconds'] == 3


def test_draining(istiod, tmp_path):
    """By the image's own client, on every Kubernetes."""
    def lifecycle(native, i=istiod, annotations=(), **spec):
        return proxy_of(i.inject(pod(annotations, **spec), native))['lifecycle']
    pilot = '/usr/local/bin/pilot-agent'
    assert lifecycle(True) == {'preStop': {'exec': {'command': [pilot, 'request', '--debug-port=15020', 'POST', 'drain']}}}

    def wait(url, seconds):
        return {'preStop': {'exec': {'command': [pilot, 'wait', '--url', url, '--timeoutSeconds', seconds, '--requestTimeoutMillis', '2000']}}}
    assert lifecycle(False) == wait('http://127.0.0.1:15020/drain/wait', '30')
    assert lifecycle(False, terminationGracePeriodSeconds=7) == wait('http://127.0.0.1:15020/drain/wait', '7')
    other = {'status.sidecar.istio.io/port': '16020'}
    assert lifecycle(False, annotations=other) == wait('http://127.0.0.1:16020/drain/wait', '30')
    none = {'status.sidecar.istio.io/port': '0'}
    assert 'drain_listeners?inboundonly&graceful&skip_exit' in lifecycle(True, annotations=none)['preStop']['exec']['command']
    assert lifecycle(False, Istiod(tmp_path, values=['everything'])) == wait('http://[::1]:15020/drain/wait', '30')
    hold = proxy_of(istiod.inject(PODS['hold'], False))['lifecycle']
    assert hold['postStart']['exec']['command'] == [pilot, 'wait'] and hold['preStop'] == lifecycle(False)['preStop']
    assert 'postStart' not in proxy_of(istiod.inject(PODS['hold'], True))['lifecycle']


def test_a_pod_may_choose_its_form(istiod):
    for wanted in (True, False):
        result = istiod.inject(pod({'sidecar.istio.io/nativeSidecar': str(wanted).lower()}), not wanted)
        assert (proxy_of(result).get('restartPolicy') == 'Always') == wanted


def test_istio_cni_is_kept_away_or_not(istiod, tmp_path):
    def env(i):
        return proxy_of(i.inject(pod(), False)).get('env', [])
    assert {'name': 'DISABLE_ENVOY', 'value': 'true'} in env(istiod)
    assert 'DISABLE_ENVOY' not in json.dumps(env(Istiod(tmp_path, values=['istio-cni'])))


def test_what_cannot_be_meshed(istiod):
    """istiod itself passes over hostNetwork; whoever asks the template all the same is refused."""
    [r] = istiod.run(pod(runtimeClassName='kata-qemu'))
    assert 'runtimeClassName kata-qemu is a sandbox' in r['error']
    assert proxy_of(istiod.inject(pod(runtimeClassName='runc')))
    [r] = istiod.run(pod(hostNetwork=True))
    assert 'host networking' in r['warnings'][0] and 'istio-proxy' not in json.dumps(r['pod'])
    [r] = istiod.run(pod(hostNetwork=True), flags=['-raw', 'agentd'])
    assert 'hostNetwork has no network of its own' in r['error']


def test_other_pods_are_istios_as_before(istiod):
    other = pod({'inject.istio.io/templates': 'sidecar'})
    [r] = istiod.run(other)
    assert proxy_of(r['pod'])['args'][:2] == ['proxy', 'sidecar'] and 'csi' not in json.dumps(r['pod']['spec']['volumes'])


def test_ipv6(tmp_path):
    args = proxy_of(Istiod(tmp_path, values=['everything']).inject(pod()))['args']
    assert args[args.index('--local-address-ip-version') + 1] == 'v6'


def test_no_map_without_the_template():
    assert not [n for (k, n) in render('1.36', '--set=injection.enabled=false') if n.endswith('-injection')]
    assert only(render(), 'DaemonSet')
