"""What istiod pushes, when it is nothing at all or more than an Envoy digests at once."""
import pytest

from tests.istiod.ca import Authority, pem

from . import mesh
from .conftest import start_pair
from .crowd import Crowd
from .pod import ADMIN
from .run import wait_for

FLAVOURS = pytest.mark.parametrize('delta', ['false', 'true'], ids=['sotw', 'delta'])


def ads(pod):
    return next(x['ads'] for x in pod.node.agentd.ctl('xds')['xds'] if x['pod'] == pod.label)


def held(node):
    return node.agentd.metric('agentd_xds_empty_pushes_held_total')


def restart_knowing_nothing(node):
    """istiod is back, and pushes before it has read anything."""
    node.istiod.order('listen', on='nothing')
    node.istiod.order('empty', on=True)
    node.istiod.order('listen', on='grpc')


@FLAVOURS
def test_an_istiod_that_knows_nothing_yet(node, delta):
    node.agentd.plane['hold_empty_push_s'] = 3600
    client, server = pair = start_pair(node, env={'ISTIO_DELTA_XDS': delta})
    load = client.load(mesh.OUTBOUND)
    restart_knowing_nothing(node)
    wait_for('both to be held', lambda: all('held back' in ads(p)['why_not'] for p in pair))
    # Clusters and listeners of both.
    wait_for('four pushes to be held', lambda: held(node) == 4)
    status, text = node.agentd.ctl_text('xds')
    assert status == 1 and text.count("istiod's first answer removes all clusters: held back") == 2
    log = node.agentd.log.read_text()
    for pod in pair:
        for what in ('clusters', 'listeners'):
            said = f"subject={pod.label} msg=\"istiod's first answer removes all {what}"
            assert log.count(said) == 1
    load.more(50)
    node.istiod.order('empty', on=False)
    wait_for('nothing held', lambda: all(ads(p)['connected'] and not ads(p)['why_not'] for p in pair))
    node.istiod.set('all', clusters=[mesh._cluster('after', '127.0.0.1', 1)])
    wait_for('a change', lambda: all('after::' in p.netns.http(ADMIN, '/clusters')[1] for p in pair))
    load.more(50)
    counts = load.stop()
    assert counts['failed'] == 0, counts
    assert not [r for r in node.istiod.journal('request', kind='nack')]


@FLAVOURS
def test_an_istiod_that_knows_a_part(node, delta):
    node.agentd.plane['hold_empty_push_s'] = 3600
    client, server = start_pair(node, env={'ISTIO_DELTA_XDS': delta})
    whole = mesh.client(server)['clusters'] + [mesh._cluster(name, '127.0.0.1', 1) for name in ('one', 'two')]
    node.istiod.set(client.id, clusters=whole)
    wait_for('all clusters', lambda: 'two::' in client.netns.http(ADMIN, '/clusters')[1])
    load = client.load(mesh.OUTBOUND)
    node.istiod.order('listen', on='nothing')
    node.istiod.set(client.id, clusters=whole[1:])
    node.istiod.order('listen', on='grpc')
    wait_for('it to be held', lambda: "istiod's first answer removes 1 of 3 clusters: held back" in ads(client)['why_not'])
    load.more(50)
    node.istiod.set(client.id, clusters=whole)
    wait_for('nothing held', lambda: ads(client)['connected'] and not ads(client)['why_not'])
    load.more(50)
    counts = load.stop()
    assert counts['failed'] == 0, counts


@FLAVOURS
def test_a_deletion_that_was_meant_comes_late(node, delta):
    node.agentd.plane['hold_empty_push_s'] = 2
    client, server = pair = start_pair(node, env={'ISTIO_DELTA_XDS': delta})
    restart_knowing_nothing(node)
    wait_for('the end of the clusters', lambda: all(
        f'{name}::' not in p.netns.http(ADMIN, '/clusters')[1] for p, name in ((client, 'server'), (server, 'app'))))
    wait_for('the log to say so', lambda: node.agentd.log.read_text().count('Envoy drops them now') == 4)
    assert held(node) == 4
    # A deletion on a stream that is known is passed on at once, and so is what comes after it.
    node.istiod.order('empty', on=False)
    wait_for('the first answer', lambda: client.netns.http(mesh.OUTBOUND)[0] == 200)
    node.istiod.order('empty', on=True)
    wait_for('the end of the listener', lambda: 'outbound' not in client.netns.http(ADMIN, '/listeners')[1])
    assert held(node) == 4


MANY = 5000
OPTIONS = {'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
    '@type': 'type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
    'explicit_http_config': {'http2_protocol_options': {}}}}


def many(word):
    """About 3 MB."""
    return [mesh._cluster(f'outbound|80|{word}|service-{n}.namespace-{n % 100}.svc.cluster.local', '127.0.0.1', 1,
                          alt_stat_name=f'{word}-{n}' + '-' * 200, typed_extension_protocol_options=OPTIONS)
            for n in range(MANY)]


def taken(node, kind, since):
    """Pod -> the place in the journal where its Envoy, or agentd for it, took a push of this type."""
    pods = {r['stream']: r['token_pod']['name'] for r in node.istiod.journal('open')}
    return {pods[r['stream']]: n for n, r in enumerate(node.istiod.journal()) if n >= since
            and r['event'] == 'request' and r['kind'] == 'ack' and r['type'].endswith(kind)}


def push_many(node, word):
    """The clusters first, then a trust anchor, which is agentd's to take; where the journal was before."""
    since, anchor = len(node.istiod.journal()), Authority.new(word).root
    node.istiod.set('all', clusters=many(word), anchors=[pem(anchor)])
    return since, f'{anchor.serial_number:x}'


@FLAVOURS
def test_5000_clusters_are_taken_and_delay_no_local_type(node, delta):
    node.agentd.settings['pcds'] = True
    client, server = pair = start_pair(node, env={'ISTIO_DELTA_XDS': delta})
    load = client.load(mesh.OUTBOUND)
    for word in ('one', 'two'):
        since, anchor = push_many(node, word)
        wait_for('both Envoys to take them', lambda s=since: all(len(taken(node, k, s)) == 2 for k in ('.Cluster', '.ProxyConfig')))
        clusters, anchors = (taken(node, kind, since) for kind in ('.Cluster', '.ProxyConfig'))
        for pod in pair:
            assert anchors[pod.name] < clusters[pod.name]  # what was pushed last was ACKed first
            wait_for('the anchor in Envoy', lambda p=pod, a=anchor: a in p.envoy_serials()[1])
            wait_for('all in Envoy', lambda p=pod, w=word: p.netns.http(ADMIN, '/clusters')[1].count(
                f'outbound|80|{w}|service-') >= MANY)
    assert not node.istiod.journal('request', kind='nack') and len(node.istiod.journal('open')) == 2
    assert len(node.istiod.issued()) == 2  # another trust is no reason for another certificate
    counts = load.stop()
    assert counts['failed'] == 0, counts
    assert node.agentd.ctl_text('status')[0] == node.agentd.ctl_text('xds')[0] == 0


def test_an_envoy_that_does_not_read_delays_no_local_type(node):
    node.agentd.settings['pcds'] = True
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    crowd = Crowd(node, 1, 1)
    name = crowd.pods[0]['name']
    node.agentd.start()
    crowd.start().wait_served()
    had = crowd.counts()[name]['sds']['ROOTCA']
    crowd.stuck(name)
    since, _ = push_many(node, 'many')
    crowd.wait_for('the anchor on the other stream', lambda c: c['sds']['ROOTCA'] > had)
    wait_for('its ACK', lambda: name in taken(node, '.ProxyConfig', since))
    assert not taken(node, '.Cluster', since)
    crowd.stuck()
    wait_for('the clusters', lambda: taken(node, '.Cluster', since))
    assert len(node.istiod.journal('open')) == 1
    crowd.stop()
