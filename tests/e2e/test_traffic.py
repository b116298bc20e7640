"""Two real Envoys: first certificates and configuration, refusals, renewal, a new root, restarts."""

import pytest

from . import mesh
from .conftest import start_pair
from .pod import STATS, STATUS, run_validate
from .run import wait_for


def serials(pod):
    return pod.envoy_serials()[0]


def issued(pod):
    return pod.node.istiod.issued(identity=f'ns/{pod.ns}/sa/{pod.sa}')


def last_serial(pod):
    return issued(pod)[-1]['serial']


def xds_of(pod):
    return [x['ads'] for x in pod.node.agentd.ctl('xds')['xds'] if x['pod'] == pod.label][0]  # LookupError: not known yet


@pytest.mark.parametrize(('delta_ads', 'sds', 'method'), [('false', 'GRPC', 'Sotw'), ('true', 'DELTA_GRPC', 'Delta')],
                         ids=['sotw', 'delta'])
def test_a_request_passes_two_envoys(node, delta_ads, sds, method):
    client, server = start_pair(node, sds, env={'ISTIO_DELTA_XDS': delta_ads})
    answer = client.netns.json(mesh.OUTBOUND, '/hello')
    assert answer['path'] == '/hello'
    assert f'URI={mesh.spiffe("demo", "client-sa")}' in answer['xfcc']

    for pod in (client, server):
        opened = [o for o in node.istiod.journal('open') if o['token_pod']['uid'] == pod.uid]
        assert [o['method'] for o in opened] == [method]
        assert len(issued(pod)) == 1 and issued(pod)[0]['pod']['uid'] == pod.uid
        assert serials(pod) == {last_serial(pod)}
        assert issued(pod)[0]['key_type'] == 'EC secp256r1'
        shown = next(p for p in node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)
        assert shown['ready'] and shown['service_account'] == pod.sa
        assert shown['node_id'].startswith(f'sidecar~{pod.ip}~{pod.name}.demo~')
    certificates = node.agentd.ctl('certs')['certificates']
    assert {(c['spiffe_id'], c['serial'].lstrip('0')) for c in certificates} == {
        (mesh.spiffe(p.ns, p.sa), last_serial(p)) for p in (client, server)}
    assert node.agentd.ctl_text('status')[0] == 0


def test_readiness_and_statistics_without_agentd(pair):
    client, _ = pair
    client.node.agentd.stop()
    for path, status in (('/healthz/ready', 200), ('/healthz/ready/', 404), ('/healthz/readyx', 404), ('/', 404),
                         ('/healthz/ready/../../quitquitquit', 404), ('/quitquitquit', 404)):
        assert client.netns.http(STATUS, path, host=client.ip)[0] == status, path
    assert client.netns.http(STATS, '/stats/prometheus', host=client.ip)[0] == 200


def test_envoy_accepts_the_bootstrap(node):
    pod = node.pod('a')
    node.agentd.start()
    pod.wait_served()
    status, said = run_validate(pod)
    assert status == 0 and 'OK' in said, said


def test_a_refused_push_is_seen_by_istiod_and_agentctl(pair):
    client, _ = pair
    node = client.node
    node.istiod.set('all', clusters=[mesh.BROKEN_CLUSTER])
    nacks = wait_for('both NACKs', lambda: len(n := node.istiod.journal('request', kind='nack')) >= 2 and n)
    assert all('broken' in n['error'] for n in nacks)

    def shown():
        cluster = next(v for k, v in xds_of(client)['types'].items() if k.endswith('v3.Cluster'))
        return cluster['nacked'] >= 1 and cluster
    assert 'broken' in wait_for('the NACK in agentctl', shown)['last_nack']
    assert 'broken' in node.agentd.ctl_text('xds', client.label)[1]
    assert client.netns.http(mesh.OUTBOUND)[0] == 200


def test_renewal_drops_no_request(node):
    node.istiod.order('ttl', seconds=8)
    client, server = start_pair(node)
    load = client.load(mesh.OUTBOUND)
    for pod in (client, server):
        wait_for('three renewals', lambda p=pod: len(issued(p)) >= 4)
        wait_for('Envoy to have the last one', lambda p=pod: serials(p) == {last_serial(p)})
    load.more(100)
    counts = load.stop()
    assert counts['failed'] == 0, counts
    # A new key and serial each time, and one certificate at a time.
    assert len({c['serial'] for c in node.istiod.issued()}) == len(node.istiod.issued())


def test_a_new_root_drops_no_request(node):
    node.istiod.order('ttl', seconds=8)
    pods = start_pair(node, 'DELTA_GRPC')
    load = pods[0].load(mesh.OUTBOUND)

    def roots(pod):
        return pod.envoy_serials()[1]
    first = roots(pods[0])
    assert len(first) == 1
    node.istiod.order('ca', issuer='a', roots=['a', 'b'])
    wait_for('both roots at both', lambda: all(len(roots(p)) == 2 for p in pods))
    node.istiod.order('ca', issuer='b', roots=['a', 'b'])
    wait_for('certificates of the new root', lambda: all(issued(p)[-1]['issuer'] == 'b' for p in pods))
    wait_for('them in the Envoys', lambda: all(
        serials(p) <= {i['serial'] for i in issued(p) if i['issuer'] == 'b'} for p in pods))
    node.istiod.order('ca', issuer='b', roots=['b'])
    wait_for('the new root alone', lambda: all(len(roots(p)) == 1 and roots(p) != first for p in pods))
    load.more(100)
    counts = load.stop()
    assert counts['failed'] == 0, counts


@pytest.mark.parametrize('delta', ['false', 'true'], ids=['sotw', 'delta'])
def test_agentd_killed_under_traffic(node, delta):
    client, server = start_pair(node, env={'ISTIO_DELTA_XDS': delta})
    load = client.load(mesh.OUTBOUND)
    load.more(50)
    for _ in range(2):
        before = {p: len(issued(p)) for p in (client, server)}
        opened = len(node.istiod.journal('open'))
        node.agentd.kill()
        load.more(50)
        node.agentd.start()
        wait_for('both Envoys to stream again',
                 lambda n=opened: {o['identity'] for o in node.istiod.journal('open')[n:] if 'identity' in o}
                 == {'ns/demo/sa/client-sa', 'ns/demo/sa/server-sa'})
        wait_for('both connected', lambda: all(xds_of(p)['connected'] for p in (client, server)))
        # What is changed now arrives, and so do the secrets.
        wait_for('the certificates in the Envoys', lambda: all(serials(p) == {last_serial(p)} for p in (client, server)))
        for pod, n in before.items():
            assert len(issued(pod)) <= n + 1
    node.istiod.set('all', clusters=[mesh._cluster('after', '127.0.0.1', 1)])
    wait_for('a change to arrive', lambda: all('after::' in p.netns.http(15000, '/clusters')[1] for p in (client, server)))
    counts = load.stop()
    assert counts['failed'] == 0, counts


def test_the_worker_ends_with_its_broker(pair):
    client, _ = pair
    agentd = client.node.agentd
    agentd.process.kill()
    wait_for('the worker to end', lambda: not agentd.cgroup.pids())
    agentd.start()
    wait_for('the client connected again', lambda: xds_of(client)['connected'])


def test_istiod_away_and_back(pair):
    client, server = pair
    node = client.node
    load = client.load(mesh.OUTBOUND)
    node.istiod.process.kill()
    wait_for('agentctl to say so', lambda: not xds_of(client)['connected'])
    load.more(50)
    node.istiod.start()
    wait_for('both connected again', lambda: all(xds_of(p)['connected'] for p in (client, server)))
    counts = load.stop()
    assert counts['failed'] == 0, counts
