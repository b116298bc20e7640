"""What helm makes of the chart, for each Kubernetes and each way of using it."""
import json
import re
import shutil
import subprocess

import pytest
import yaml

from .chart import BUILD, CHART, KUBERNETES, VALUES, helm, only, render, validate

WAYS = [(), *((f.stem,) for f in sorted(VALUES.glob('*.yaml')))]


@pytest.mark.parametrize('version', KUBERNETES)
@pytest.mark.parametrize('values', WAYS, ids=lambda v: '+'.join(v) or 'default')
def test_each_object_is_valid(version, values):
    objects = render(version, values=values)
    assert {'DaemonSet', 'CSIDriver', 'ConfigMap'} <= {kind for kind, _ in objects}
    for (kind, _), thing in objects.items():
        if kind not in ('PodMonitor', 'PrometheusRule'):  # not Kubernetes' own: test_prometheus_finds_each_agentd_once, test_rules.py
            validate(thing, version)


def test_a_misspelt_field_is_found():
    driver = only(render(), 'CSIDriver')
    driver['spec']['podInfoOnMont'] = True
    with pytest.raises(Exception, match='podInfoOnMont'):
        validate(driver, '1.36')


def test_lint_is_silent():
    for values in WAYS:
        helm('lint', '--strict', '--kube-version=1.36.0', *(f'--values={VALUES / v}.yaml' for v in values))


def test_an_older_kubernetes_is_refused():
    assert 'incompatible' in helm('template', '--kube-version=1.27.0', check=False).stderr


@pytest.mark.parametrize('values', WAYS, ids=lambda v: '+'.join(v) or 'default')
def test_agentd_takes_its_configuration(values, tmp_path):
    """Every key that is rendered exists, and so does every flag."""
    objects = render(values=values)
    config = tmp_path / 'agentd.yaml'
    text = next(o['data']['agentd.yaml'] for o in objects.values() if 'agentd.yaml' in o.get('data', {}))
    config.write_text(text)
    container = only(objects, 'DaemonSet')['spec']['template']['spec']['containers'][0]
    args = [a.replace('$(HOST_IP)', '192.0.2.1') for a in container['args']]
    agentd = [BUILD / 'release' / 'agentd', '--config', config, *args, '--check']
    r = subprocess.run(agentd, capture_output=True, text=True, timeout=60, check=False)
    planes = len(yaml.safe_load(text)['control_planes'])
    assert f'configuration          {planes} control plane' in r.stdout, r.stdout + r.stderr


def test_a_key_that_agentd_does_not_have_is_not_taken(tmp_path):
    """Neither by helm nor by agentd."""
    config = tmp_path / 'agentd.yaml'
    config.write_text(render()['ConfigMap', 'agentd']['data']['agentd.yaml'] + '\npod_conections: 3\n')
    r = subprocess.run([BUILD / 'release' / 'agentd', '--config', config, '--check'],
                       capture_output=True, text=True, timeout=60, check=False)
    assert r.returncode and 'pod_conections' in r.stdout + r.stderr


def test_all_values_reach_agentd():
    got = yaml.safe_load(render(values=['everything'])['ConfigMap', 'mesh-agent']['data']['agentd.yaml'])
    main = {'name': 'main', 'address': 'istiod.istio-system.svc:15012', 'server_name': 'istiod.istio-system.svc',
            'cluster_id': 'east', 'mesh_id': 'mesh1', 'trust_domain': ['td.example', 'cluster.local'], 'connections': 4,
            'opens_per_second': 40, 'opens_burst': 10, 'pod_opens_per_second': 2, 'pod_opens_burst': 6,
            'unread_stream_s': 30, 'hold_empty_push_s': 0}
    second = {'name': 'second', 'address': '[fd00::1]:15012', 'root': 'SYSTEM', 'cluster_id': ['west', 'west-1'],
              'mesh_id': 'other', 'trust_domain': 'other.example'}
    assert got == {
        'log_level': 'default:warn,xds:debug', 'log_json': False, 'istio_namespace': 'mesh',
        'cluster_domain': 'k8s.example', 'ip_family': 'ipv6', 'secret_ttl_min_s': 7200, 'secret_ttl_max_s': 43200,
        'certificate_scope': 'pod', 'attest': 'require', 'state_keys': 'memory', 'pcds': True, 'redirect': 'ebpf',
        'redirect_policy': 'permissive', 'publish_wait_ms': 500, 'dns_upstream': '10.96.0.10,fd00::a', 'pod_connections': 64, 'csr_per_second': 20,
        'control_planes': [main, second]}


def agentd_pod(*args, **kw):
    spec = only(render(*args, **kw), 'DaemonSet')['spec']['template']['spec']
    return spec, spec['containers'][0]


def test_roots_are_where_agentd_is_told():
    spec, container = agentd_pod(values=['everything'])
    sources = next(v for v in spec['volumes'] if v['name'] == 'root')['projected']['sources']
    files = {i['path'] for s in sources for i in s['configMap']['items']}
    told = {a.split('=')[2].removeprefix('/etc/agentd/root/') for a in container['args'] if '-file=' in a}
    assert files == told == {'main.pem', 'main.crl.pem'}  # the second plane has the system's roots


@pytest.mark.parametrize('values,root', [((), '/var/lib/kubelet'), (('k0s',), '/var/lib/k0s/kubelet')])
def test_paths_are_the_same_inside_and_outside(values, root):
    """agentd's symlink and mounts are looked at by the kubelet."""
    spec, container = agentd_pod(values=values)
    assert f'--kubelet-root={root}' in container['args']
    outside = {v['name']: v['hostPath']['path'] for v in spec['volumes'] if 'hostPath' in v}
    inside = {m['name']: m['mountPath'] for m in container['volumeMounts'] if m['name'] in outside}
    assert outside == inside
    assert {f'{root}/pods', f'{root}/plugins_registry', '/run/agentd'} <= set(inside.values())
    both = {m['mountPath'] for m in container['volumeMounts'] if m.get('mountPropagation') == 'Bidirectional'}
    assert both == {f'{root}/pods', '/run/agentd', '/sys/fs/bpf'}


def test_no_right_at_the_api():
    for values in WAYS:
        objects = {k: o for k, o in render(values=values).items() if 'injector' not in k[1]}  # its rights: test_injector.py
        kinds = {kind for kind, _ in objects}
        assert not kinds & {'Role', 'ClusterRole', 'ClusterRoleBinding', 'Secret'}
        if 'RoleBinding' in kinds:
            assert values == ('openshift',)
            assert only(objects, 'RoleBinding')['roleRef']['name'] == 'system:openshift:scc:privileged'
        assert only(objects, 'DaemonSet')['spec']['template']['spec']['automountServiceAccountToken'] is False
        assert all(o['automountServiceAccountToken'] is False for (k, _), o in objects.items() if k == 'ServiceAccount')


@pytest.mark.parametrize('version', KUBERNETES)
def test_the_driver_object_fits_the_server(version):
    spec = only(render(version), 'CSIDriver')['spec']
    assert ('serviceAccountTokenInSecrets' in spec) == (int(version[2:]) >= 35)
    assert spec['tokenRequests'] == [{'audience': 'istio-ca', 'expirationSeconds': 43200}]
    assert spec['podInfoOnMount'] and spec['requiresRepublish'] and not spec['attachRequired']
    assert spec['volumeLifecycleModes'] == ['Ephemeral'] and spec['fsGroupPolicy'] == 'None'


def test_uninstall_leaves_what_meshed_pods_need():
    """Nobody could unmount their volumes without agentd: they would stay in Terminating, their nodes undrainable."""
    def kept(objects):
        return {kind for (kind, _), o in objects.items() if o['metadata'].get('annotations', {}).get('helm.sh/resource-policy') == 'keep'}
    assert kept(render()) == {'DaemonSet', 'ConfigMap', 'CSIDriver', 'ServiceAccount'}
    assert kept(render(values=['openshift'])) == {'DaemonSet', 'ConfigMap', 'CSIDriver', 'ServiceAccount', 'RoleBinding'}
    assert 'ResourceQuota' in kept(render('1.36', '--set=gke.resourceQuota=true'))
    assert not kept(render(values=['everything']))
    pods = [only(render('1.36', f'--set=keepOnUninstall={b}'), 'DaemonSet')['spec'] for b in ('true', 'false')]
    assert pods[0] == pods[1]  # to change one's mind restarts no agentd


def test_a_tokens_life():
    spec = only(render(values=['everything']), 'CSIDriver')['spec']
    assert spec['tokenRequests'] == [{'audience': 'istio-ca', 'expirationSeconds': 3600}]


def test_helm_test_looks_at_a_node_and_starts_a_pod():
    pods = {n: o for (k, n), o in render(values=['everything']).items() if k == 'Pod'}
    assert set(pods) == {'mesh-agent-test-status', 'mesh-agent-test-volume'}
    daemon = only(render(values=['everything']), 'DaemonSet')['spec']
    for o in pods.values():
        assert o['metadata']['annotations']['helm.sh/hook'] == 'test' and o['spec']['restartPolicy'] == 'Never'
        assert 'hook-succeeded' in o['metadata']['annotations']['helm.sh/hook-delete-policy']  # it would look like a meshed pod
        assert not daemon['selector']['matchLabels'].items() <= o['metadata']['labels'].items()  # it is no agentd
        for key in ('nodeSelector', 'affinity', 'tolerations', 'imagePullSecrets'):
            assert o['spec'][key] == daemon['template']['spec'][key]
    looks, starts = (pods[f'mesh-agent-test-{n}']['spec'] for n in ('status', 'volume'))
    assert looks['containers'][0]['command'] == ['/usr/local/bin/agentctl', 'status']
    assert [v['hostPath']['path'] for v in looks['volumes']] == [looks['containers'][0]['volumeMounts'][0]['mountPath']] == ['/run/agentd']
    assert looks['hostNetwork'] == daemon['template']['spec']['hostNetwork']  # else the admin socket refuses it
    assert [v['csi']['driver'] for v in starts['volumes']] == ['agentd.node.mesh']
    program, *args = starts['containers'][0]['command']
    assert subprocess.run([BUILD / 'release' / program.rsplit('/', 1)[1], *args], capture_output=True, check=False).returncode == 0
    assert starts['containers'][0]['securityContext']['runAsNonRoot']


def test_an_update_hands_over():
    update = only(render(), 'DaemonSet')['spec']['updateStrategy']
    assert update == {'type': 'RollingUpdate', 'rollingUpdate': {'maxSurge': 1, 'maxUnavailable': 0}}
    spec, container = agentd_pod()
    assert {'--take-over', '--linger'} <= set(container['args'])
    labels = only(render(), 'DaemonSet')['spec']['template']['metadata']['labels']
    assert labels['istio.io/dataplane-mode'] == 'none' and labels['sidecar.istio.io/inject'] == 'false'
    assert spec['hostPID'] and spec['hostNetwork'] and spec['dnsPolicy'] == 'ClusterFirstWithHostNet'


@pytest.mark.parametrize('values', WAYS, ids=lambda v: '+'.join(v) or 'default')
def test_old_and_new_fit_on_one_node(values):
    """With hostNetwork any declared port is the node's, and the scheduler gives it to one pod only."""
    spec, container = agentd_pod(values=values)
    assert not any(c.get('ports') for c in [container, *spec.get('initContainers', ())])


def test_another_configuration_is_another_agentd():
    def template(*args):
        return only(render('1.36', *args), 'DaemonSet')['spec']['template']
    assert template() != template('--set=logLevel=debug')
    assert template() == template('--set=injection.network=n9')


def test_programs_that_the_probes_run_exist():
    _, container = agentd_pod()
    for probe in ('startupProbe', 'readinessProbe', 'livenessProbe'):
        program, noun, *of = container[probe]['exec']['command']
        assert of == ['--of', next(a for a in container['args'] if a.startswith('--alive=')).removeprefix('--alive=')]
        text = subprocess.run([BUILD / 'release' / program.rsplit('/', 1)[1], '--help'],
                              capture_output=True, text=True, check=True).stdout
        assert f'\n  {noun} ' in text


@pytest.fixture(name='notes')
def fixture_notes(tmp_path):
    """What `helm install` says; `helm template` keeps it to itself."""
    chart = shutil.copytree(CHART, tmp_path / 'agentd')
    (chart / 'templates' / 'notes.yaml').write_text('kind: Notes\ntext: {{ include "agentd/templates/NOTES.txt" . | toJson }}\n')

    def render_notes(*args):
        text = helm('template', '--kube-version=1.36.0', '--namespace=mesh', *args, '--show-only=templates/notes.yaml', chart=chart).stdout
        return yaml.safe_load(text)['text']
    return render_notes


def test_the_notes_fit_the_values(notes):
    text = notes()
    assert 'kubectl -n mesh get configmap agentd-injection' in text and 'rollout status daemonset/agentd' in text
    assert 'WARNING' not in text and 'redirects no traffic' not in text
    assert 'agentd-injection' not in notes('--set=injection.enabled=false')
    assert 'WARNING' in notes('--set=updateStrategy.rollingUpdate.maxSurge=0,updateStrategy.rollingUpdate.maxUnavailable=1')
    assert 'redirect.mode is none' in notes('--set=redirect.mode=none')
    assert 'deployment/agentd-injector' not in text
    assert 'deployment/agentd-injector' in notes('--set=injector.mode=webhook,injector.values.global.tag=1')


def test_the_notes_find_meshed_pods(notes, tmp_path):
    """kubectl's go-template is helm's engine."""
    template = re.search(r"go-template='(.*)'", notes())[1]
    meshed = {'metadata': {'namespace': 'a', 'name': 'b'},
              'spec': {'volumes': [{'name': 'x', 'emptyDir': {}}, {'name': 'y', 'csi': {'driver': 'agentd.node.mesh'}}]}}
    others = [{'metadata': {'namespace': 'a', 'name': 'c'}, 'spec': {'volumes': [{'name': 'z', 'csi': {'driver': 'other'}}]}},
              {'metadata': {'namespace': 'a', 'name': 'd'}, 'spec': {}}]
    (tmp_path / 'try' / 'templates').mkdir(parents=True)
    (tmp_path / 'try' / 'Chart.yaml').write_text('apiVersion: v2\nname: try\nversion: 0.0.1\n')
    (tmp_path / 'try' / 'templates' / 'x.yaml').write_text('found: |\n  {{ with .Values }}' + template + '{{ end }}')
    text = helm('template', f'--set-json=items={json.dumps([meshed, *others])}', chart=tmp_path / 'try').stdout
    assert yaml.safe_load(text) == {'found': 'a/b\n'}


@pytest.mark.parametrize('values,flag', [((), None), (('k0s',), '--metrics=[$(HOST_IP)]:15091'), (('everything',), '--metrics=[fd00::1]:9099')])
def test_metrics_are_where_they_are_asked_for(values, flag):
    _, container = agentd_pod(values=values)
    assert [a for a in container['args'] if a.startswith('--metrics')] == ([flag] if flag else [])
    names = [e['name'] for e in container['env']]
    assert set(re.findall(r'\$\((\w+)\)', ' '.join(container['args']))) <= set(names)
    assert ('PodMonitor', 'mesh-agent') in render(values=values) or values != ('everything',)
    assert 'PodMonitor' not in {kind for kind, _ in render(values=values)} or values == ('everything',)


def relabel(rules, target):
    """As Prometheus does; None: dropped."""
    for rule in rules:
        found = re.fullmatch(str(rule.get('regex', '(.*)')), ';'.join(target.get(k, '') for k in rule['sourceLabels']))
        action = rule.get('action', 'replace')
        if (action == 'keep' and not found) or (action == 'drop' and found):
            return None
        if action == 'replace' and found:
            target[rule['targetLabel']] = found.expand(re.sub(r'\$(\d)', r'\\\1', rule.get('replacement', '$1')))
    return target


def test_prometheus_finds_each_agentd_once():
    objects = render(values=['everything'])
    monitor, daemon = only(objects, 'PodMonitor'), only(objects, 'DaemonSet')
    assert monitor['metadata']['labels'].items() >= {'release': 'prometheus', 'team': 'mesh'}.items()
    assert monitor['spec']['selector']['matchLabels'].items() <= daemon['spec']['template']['metadata']['labels'].items()
    assert monitor['metadata']['namespace'] == daemon['metadata']['namespace']
    assert monitor['spec']['jobLabel'] in daemon['spec']['template']['metadata']['labels']
    [endpoint] = monitor['spec']['podMetricsEndpoints']
    rules = endpoint.pop('relabelings')
    assert endpoint == {'path': '/metrics', 'interval': '15s', 'honorLabels': True}
    for ip, address in (('10.1.2.3', '10.1.2.3:9099'), ('fd00::7', '[fd00::7]:9099')):
        found = [relabel(rules, {'__address__': ip, '__meta_kubernetes_pod_ip': ip, '__meta_kubernetes_pod_node_name': 'n1',
                                 '__meta_kubernetes_pod_container_name': c['name'],
                                 '__meta_kubernetes_pod_container_init': 'true' if init else 'false'})
                 for init, kind in enumerate(('containers', 'initContainers'))
                 for c in daemon['spec']['template']['spec'][kind]]
        assert [(t['__address__'], t['node']) for t in found if t] == [(address, 'n1')]


# A value, and what is said about it.
REFUSED = [
    ('no-such-key=1', 'no-such-key'), ('redirect.mod=ebpf', 'mod'), ('redirect.mode=iptables', 'mode'),
    ('redirect.policy=lax', 'policy'), ('redirect.allow={all}', 'allow'), ('redirect.bpffs=bpf', 'bpffs'),
    ('attest=never', 'attest'), ('stateKeys=disk', 'stateKeys'), ('certificateScope=node', 'certificateScope'),
    ('ipFamily=dual', 'ipFamily'), ('kubeletRoot=var/lib/kubelet', 'kubeletRoot'), ('kubeletRoot=/a b', 'kubeletRoot'),
    ('maxPods=0', 'maxPods'), ('maxPods=70000', 'maxPods'), ('maxPods=many', 'maxPods'), ('logJson=yes', 'logJson'),
    ('clusterId=', 'clusterId'), ('clusterId=a b', 'clusterId'), ('trustDomain=a/b', 'trustDomain'),
    ('trustDomain={a,A}', 'trustDomain'), ('clusterId={a,b c}', 'clusterId'), ('meshId={}', 'meshId'),
    ('istioNamespace=A', 'istioNamespace'), ('controlPlanes=null', 'controlPlanes'),
    ('image.digest=sha256:12', 'digest'), ('image.pullPolicy=Sometimes', 'pullPolicy'),
    ('secretTtlMinSeconds=0', 'secretTtlMinSeconds'), ('tokenExpirationSeconds=599', 'tokenExpirationSeconds'), ('keepOnUninstall=1', 'keepOnUninstall'), ('terminationGracePeriodSeconds=0', 'terminationGracePeriod'),
    ('settings.control_planes=x', 'control_planes'), ('settings.Log=x', 'Log'), ('settings.pod_conections=3', 'pod_conections'),
    ('settings.csr_per_second=many', 'csr_per_second'), ('settings.csr_per_second=101', 'csr_per_second'), ('extraArgs={no-flag}', 'extraArgs'),
    ('updateStrategy.type=Recreate', 'updateStrategy'), ('resources.claims=x', 'claims'),
    ('injection.templateName=A B', 'templateName'), ('injection.enabled=1', 'injection'),
    ('gke.pods=0', 'gke'), ('openshift.enabled=maybe', 'openshift'), ('serviceAccount.create=1', 'serviceAccount'),
    ('metrics.port=0', 'port'), ('metrics.address=localhost', 'address'), ('metrics.podMonitor.enabled=true', 'metrics'),
    ('metrics.podMonitor.interval=fast', 'interval'), ('hostNetwork=false', 'hostNetwork'), ('commonLabels.a=true', 'commonLabels'),
]
PLANES = [  # one control plane
    ({'name': 'x'}, 'address'), ({'address': 'a:1', 'root': 'SYSTEM'}, 'name'),
    ({'name': 'x', 'address': 'a', 'root': 'SYSTEM'}, 'address'), ({'name': 'x', 'address': 'a:1'}, 'rootConfigMap'),
    ({'name': 'x', 'address': 'a:1', 'root': '/etc/root.pem'}, 'root'),
    ({'name': 'X', 'address': 'a:1', 'root': 'SYSTEM'}, 'name'),
    ({'name': 'x', 'address': 'a:1', 'root': 'SYSTEM', 'connections': 17}, 'connections'),
    ({'name': 'x', 'address': 'a:1', 'root': 'SYSTEM', 'cluster_id': 'y'}, 'cluster_id'),
    ({'name': 'x', 'address': 'a:1', 'root': 'SYSTEM', 'rootConfigMap': {'name': 'a', 'key': 'b'}}, 'oneOf'),
]


@pytest.mark.parametrize('value,said', REFUSED, ids=lambda v: str(v)[:30])
def test_wrong_values_are_refused(value, said):
    r = helm('template', '--kube-version=1.36.0', f'--set={value}', check=False)
    assert r.returncode and said in r.stderr, r.stderr


@pytest.mark.parametrize('plane,said', PLANES, ids=lambda v: str(v)[:30])
def test_wrong_control_planes_are_refused(plane, said):
    r = helm('template', '--kube-version=1.36.0', f'--set-json=controlPlanes={json.dumps([plane])}', check=False)
    assert r.returncode and ('controlPlanes' in r.stderr and (said in r.stderr or said == 'oneOf')), r.stderr
