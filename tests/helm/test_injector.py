"""The chart's webhook: which pods it selects, what its replicas may do, and whether the program takes what it is given."""
import functools
import itertools
import json
import subprocess

import pytest

from tests.e2e.injector import Injector

from .chart import BUILD, KUBERNETES, helm, only, render, validate

WEBHOOK = '--set=injector.mode=webhook,injector.values.global.tag=1.29.1'
ISTIO = '--set=injector.mode=webhook,injector.selectors=istio,injector.fromIstiod=true'
CERT_MANAGER = '--set=injector.certificate.source=certManager,injector.certificate.issuerRef.name=ca'
PEM = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n'
PROVIDED = '--set-json=injector.certificate=' + json.dumps({'source': 'provided', 'secretName': 'own', 'caBundle': PEM})


@functools.cache
def rendered(*args, values=()):
    return render('1.36', *args, values=values)


def of(kind, *args, values=()):
    """The webhook's object of a kind."""
    found = [o for (k, _), o in rendered(*args, values=tuple(values)).items() if k == kind and 'injector' in o['metadata']['name']]
    assert len(found) == 1, kind
    return found[0]


def container(*args, **kw):
    spec = of('Deployment', *args, **kw)['spec']['template']['spec']
    return spec, spec['containers'][0]


def test_off_is_nothing():
    assert not [n for _, n in render() if 'injector' in n]


@pytest.mark.parametrize('args', [[ISTIO], [WEBHOOK, CERT_MANAGER], [WEBHOOK, PROVIDED], [WEBHOOK, '--set=injector.replicas=1']], ids=str)
def test_each_object_is_valid(args):
    """Of the other ways; test_render.py has the plain one."""
    for version in (KUBERNETES[0], KUBERNETES[-1]):
        for (kind, _), thing in render(version, *args).items():
            if kind != 'Certificate':
                validate(thing, version)


def test_rights_by_name():
    objects = rendered(values=('injector',))
    rules = {k: o['rules'] for (k, _), o in objects.items() if k in ('Role', 'ClusterRole')}
    secret, webhook = of('Secret', values=['injector']), of('MutatingWebhookConfiguration', values=['injector'])
    assert rules == {
        'Role': [{'apiGroups': [''], 'resources': ['secrets'], 'resourceNames': [secret['metadata']['name']], 'verbs': ['get', 'update']}],
        'ClusterRole': [{'apiGroups': ['admissionregistration.k8s.io'], 'resources': ['mutatingwebhookconfigurations'],
                         'resourceNames': [webhook['metadata']['name']], 'verbs': ['get', 'patch']}]}
    for kind in ('Role', 'ClusterRole'):
        binding = of(f'{kind}Binding', values=['injector'])
        assert binding['roleRef']['name'] == of(kind, values=['injector'])['metadata']['name']
        assert [s['name'] for s in binding['subjects']] == ['agentd-injector']
    assert {o['spec']['template']['spec']['serviceAccountName'] for (k, _), o in objects.items() if k in ('DaemonSet', 'Deployment')} == {
        'agentd', 'agentd-injector'}
    spec, c = container(values=['injector'])
    assert spec['automountServiceAccountToken'] is True
    assert f'--secret={secret["metadata"]["name"]}' in c['args'] and f'--webhook={webhook["metadata"]["name"]}' in c['args']
    for way in (CERT_MANAGER, PROVIDED):  # files: nothing is asked of the API
        assert not {'Role', 'ClusterRole', 'Secret'} & {k for k, _ in rendered(WEBHOOK, way)}
        assert container(WEBHOOK, way)[0]['automountServiceAccountToken'] is False


def test_an_upgrade_leaves_what_the_replicas_wrote():
    """What the chart does not name survives helm upgrade (contract injection.md 7)."""
    assert not {'data', 'stringData'} & set(of('Secret', WEBHOOK))
    for way in ((WEBHOOK,), (ISTIO,), (WEBHOOK, CERT_MANAGER)):
        assert all('caBundle' not in w['clientConfig'] for w in of('MutatingWebhookConfiguration', *way)['webhooks'])


def test_names_that_istiod_leaves_alone():
    for way in (WEBHOOK, ISTIO):
        for full in ('', 'zz', 'a' * 63):
            o = of('MutatingWebhookConfiguration', way, f'--set=fullnameOverride={full}')
            assert o['metadata']['name'].encode() < b'istio-'
            assert not [k for k in o['metadata']['labels'] if k.startswith('istio.io/')]
            assert all(not w['name'].endswith('sidecar-injector.istio.io') for w in o['webhooks'])
            assert of('Service', way, f'--set=fullnameOverride={full}')['metadata']['name'] == o['webhooks'][0]['clientConfig']['service']['name']


def test_how_api_servers_ask():
    for w in of('MutatingWebhookConfiguration', WEBHOOK)['webhooks']:
        assert (w['failurePolicy'], w['timeoutSeconds'], w['sideEffects'], w['reinvocationPolicy']) == ('Fail', 5, 'None', 'Never')
        assert w['rules'] == [{'operations': ['CREATE'], 'apiGroups': [''], 'apiVersions': ['v1'], 'resources': ['pods'], 'scope': 'Namespaced'}]
        service, port = of('Service', WEBHOOK), w['clientConfig']['service']
        assert port == {'name': service['metadata']['name'], 'namespace': 'istio-system', 'path': '/inject', 'port': 443}
    _, c = container(WEBHOOK)
    assert c['ports'] == [{'name': 'webhook', 'containerPort': 15017}] and service['spec']['ports'][0]['targetPort'] == 'webhook'
    assert f'--server-name={service["metadata"]["name"]}.istio-system.svc' in c['args']
    assert {w['failurePolicy'] for w in of('MutatingWebhookConfiguration', WEBHOOK, '--set=injector.failurePolicy=Ignore')['webhooks']} == {'Ignore'}


def matches(selector, labels):
    def one(e):
        value = labels.get(e['key'])
        return {'In': lambda: value in e['values'], 'NotIn': lambda: value not in e['values'],
                'DoesNotExist': lambda: value is None, 'Exists': lambda: value is not None}[e['operator']]()
    return all(one(e) for e in selector['matchExpressions'])


def selected(webhooks, ns, pod):
    return sum(matches(w['namespaceSelector'], ns) and matches(w['objectSelector'], pod) for w in webhooks)


def every(**values):
    """Labels with each combination of values; None: no such label."""
    for chosen in itertools.product(*values.values()):
        yield {k: v for k, v in zip(values, chosen) if v is not None}


def test_pods_are_selected_once_or_not():
    webhooks = of('MutatingWebhookConfiguration', WEBHOOK)['webhooks']
    own, istio = 'agentd.node.mesh/inject', 'sidecar.istio.io/inject'
    for ns in every(**{'kubernetes.io/metadata.name': ['demo', 'kube-system', 'kube-public', 'kube-node-lease'],
                       'agentd.node.mesh/injection': [None, 'enabled', 'disabled'], 'istio-injection': [None, 'enabled']}):
        for pod in every(**{own: [None, 'true', 'false', 'x'], istio: [None, 'true', 'false']}):
            wanted = ns['kubernetes.io/metadata.name'] == 'demo' and pod.get(istio) != 'false' and pod.get(own) != 'false' and (
                ns.get('agentd.node.mesh/injection') == 'enabled' or pod.get(own) == 'true')
            assert selected(webhooks, ns, pod) == wanted, (ns, pod)


@pytest.mark.parametrize('revision', ['', 'default', 'canary'])
def test_istios_selectors(revision):
    """The table of istiod's own configuration (contract injection.md 7): of another revision than the default one its two rows alone."""
    webhooks = of('MutatingWebhookConfiguration', ISTIO, f'--set=injector.revision={revision}')['webhooks']
    mine, default = revision or 'default', revision != 'canary'
    inject = 'sidecar.istio.io/inject'
    for ns in every(**{'kubernetes.io/metadata.name': ['demo', 'kube-system'], 'istio-injection': [None, 'enabled', 'disabled'],
                       'istio.io/rev': [None, 'default', 'canary']}):
        for pod in every(**{inject: [None, 'true', 'false'], 'istio.io/rev': [None, 'default', 'canary']}):
            injection, rev = ns.get('istio-injection'), ns.get('istio.io/rev')
            wanted = pod.get(inject) != 'false' and (
                (default and injection == 'enabled') or
                (injection is None and rev == mine) or
                (injection is None and rev is None and pod.get('istio.io/rev') == mine) or
                (default and injection is None and rev is None and pod.get('istio.io/rev') is None and pod.get(inject) == 'true'))
            assert selected(webhooks, ns, pod) == (wanted and ns['kubernetes.io/metadata.name'] == 'demo'), (ns, pod)


@pytest.mark.parametrize('revision,suffix', [('', ''), ('default', ''), ('canary', '-canary')])
def test_the_files_of_a_revision(revision, suffix):
    spec, _ = container(ISTIO, f'--set=injector.revision={revision}')
    volumes = {v['name']: v['configMap']['name'] for v in spec['volumes'] if 'configMap' in v}
    assert volumes.items() >= {'istiod': f'istio-sidecar-injector{suffix}', 'istiod-mesh': f'istio{suffix}'}.items()


@pytest.mark.parametrize('mode,selectors,hidden', [('ebpf', 'own', True), ('istio-init', 'own', True), ('istio-cni', 'own', False), ('ebpf', 'istio', False)])
def test_when_istiod_is_kept_away(mode, selectors, hidden):
    objects = rendered(WEBHOOK, f'--set=redirect.mode={mode},injector.selectors={selectors}')
    config = json.loads(objects['ConfigMap', 'agentd-injector']['data']['config.yaml'])
    assert config['agentd']['hideFromIstiod'] is hidden and config['agentd']['redirectMode'] == mode


def test_restricted():
    spec, c = container(values=['injector'])
    assert c['securityContext'] == {'allowPrivilegeEscalation': False, 'capabilities': {'drop': ['ALL']}, 'readOnlyRootFilesystem': True}
    assert spec['securityContext']['runAsNonRoot'] and spec['securityContext']['runAsUser'] >= 1000
    assert spec['securityContext']['seccompProfile'] == {'type': 'RuntimeDefault'}
    assert not {'hostNetwork', 'hostPID', 'hostIPC'} & set(spec)
    assert {next(iter(set(v) - {'name'})) for v in spec['volumes']} == {'configMap'}


def test_clients_have_certificates_if_wanted():
    assert '--client-ca=/etc/agentd/clients/ca.crt' not in container(WEBHOOK)[1]['args']
    spec, c = container(WEBHOOK, '--set=injector.clientCaConfigMap=front-proxy')
    assert '--client-ca=/etc/agentd/clients/ca.crt' in c['args']
    assert {'name': 'clients', 'mountPath': '/etc/agentd/clients', 'readOnly': True} in c['volumeMounts']
    assert {'name': 'clients', 'configMap': {'name': 'front-proxy'}} in spec['volumes']


def test_gke_admits_it():
    """Its priority is critical, and outside kube-system that wants a quota."""
    [scope] = rendered(WEBHOOK, '--set=gke.resourceQuota=true')['ResourceQuota', 'agentd']['spec']['scopeSelector']['matchExpressions']
    assert container(WEBHOOK)[0]['priorityClassName'] in scope['values'] == ['system-node-critical', 'system-cluster-critical']


def test_one_is_always_there():
    deployment = of('Deployment', values=['injector'])['spec']
    pods = deployment['template']['metadata']['labels']
    assert deployment['replicas'] == 2 and deployment['strategy']['rollingUpdate'] == {'maxSurge': 1, 'maxUnavailable': 0}
    assert of('PodDisruptionBudget', values=['injector'])['spec'] == {'maxUnavailable': 1, 'selector': deployment['selector']}
    spread = deployment['template']['spec']['topologySpreadConstraints']
    assert [s['topologyKey'] for s in spread] == ['kubernetes.io/hostname', 'topology.kubernetes.io/zone']
    for selector in (*(s['labelSelector']['matchLabels'] for s in spread), deployment['selector']['matchLabels'],
                     of('Service', values=['injector'])['spec']['selector']):
        assert selector.items() <= pods.items()
    daemon = only(rendered(values=('injector',)), 'DaemonSet')['spec']
    assert not daemon['selector']['matchLabels'].items() <= pods.items()
    assert not deployment['selector']['matchLabels'].items() <= daemon['template']['metadata']['labels'].items()
    assert pods['sidecar.istio.io/inject'] == 'false' and pods['istio.io/dataplane-mode'] == 'none'
    assert deployment['template']['spec']['terminationGracePeriodSeconds'] > 15 + 10
    assert 'PodDisruptionBudget' not in {k for k, _ in rendered(WEBHOOK, '--set=injector.replicas=1')}


def test_certificates_of_others():
    spec, c = container(WEBHOOK, CERT_MANAGER)
    cert = of('Certificate', WEBHOOK, CERT_MANAGER)
    assert cert['spec']['dnsNames'] == [next(a for a in c['args'] if a.startswith('--server-name=')).partition('=')[2]]
    assert cert['spec']['issuerRef'] == {'name': 'ca'}
    tls = next(v for v in spec['volumes'] if v['name'] == 'tls')
    assert tls['secret']['secretName'] == cert['spec']['secretName'] and '--tls-key=/etc/agentd/tls/tls.key' in c['args']
    webhook = of('MutatingWebhookConfiguration', WEBHOOK, CERT_MANAGER)
    assert webhook['metadata']['annotations'] == {'cert-manager.io/inject-ca-from': 'istio-system/' + cert['metadata']['name']}
    spec, _ = container(WEBHOOK, PROVIDED)
    assert next(v for v in spec['volumes'] if v['name'] == 'tls')['secret']['secretName'] == 'own'
    assert {w['clientConfig']['caBundle'] for w in of('MutatingWebhookConfiguration', WEBHOOK, PROVIDED)['webhooks']} == {
        'LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo='}


def test_the_program_takes_its_flags_and_its_configuration(tmp_path):
    text = subprocess.run([BUILD / 'release' / 'agentd-injector', '--help'], capture_output=True, text=True, check=True).stdout
    for way in ((WEBHOOK,), (ISTIO,), (WEBHOOK, CERT_MANAGER), (WEBHOOK, PROVIDED, '--set=logJson=true')):
        for flag in container(*way)[1]['args']:
            assert f'  {flag.partition("=")[0]}' in text, flag
    config = rendered(values=('injector',))['ConfigMap', 'agentd-injector']['data']['config.yaml']
    injector = Injector(tmp_path / 'i', mode='release', config=json.loads(config)).start()
    try:
        assert injector.image() == 'docker.io/istio/proxyv2:1.29.1'
        assert {'op': 'add', 'path': '/metadata/labels/sidecar.istio.io~1inject', 'value': 'false'} in injector.patch()
    finally:
        injector.remove()


REFUSED = [
    ('injector.mode=webhook', 'global'), ('injector.mode=policy', 'global'), ('injector.mode=mutate', 'mode'), ('injector.mode=on', 'mode'), ('injector.selectors=all', 'selectors'),
    ('injector.mode=webhook,injector.fromIstiod=true,injector.values.global.tag=1', 'values'), ('injector.replicas=0', 'replicas'),
    ('injector.mode=webhook,injector.values.global.hub=x', 'tag'), ('injector.failurePolicy=fail', 'failurePolicy'),
    ('injector.certificate.source=files', 'source'), ('injector.certificate.source=certManager', 'name'),
    ('injector.certificate.source=provided', 'secretName'), ('injector.certificate.secretName=x', 'secretName'),
    ('injector.certificate.caBundle=x', 'caBundle'), ('injector.timeoutSeconds=5', 'timeoutSeconds'),
]


@pytest.mark.parametrize('value,said', REFUSED, ids=lambda v: str(v)[:40])
def test_wrong_values_are_refused(value, said):
    r = helm('template', '--kube-version=1.36.0', f'--set={value}', check=False)
    assert r.returncode and said in r.stderr, r.stderr
