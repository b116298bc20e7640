"""Is a pod served *now*?  What each page says before, while and after something refuses it; nothing is restarted in between."""
import os
import re

import pytest

from . import mesh
from .conftest import start_pair
from .pod import STATS
from .run import wait_for

# A few of each in every run: those that Envoy sees and those that it does not see are different roads.
SOAK = bool(os.environ.get('AGENTD_SOAK'))
CODES = ('PERMISSION_DENIED', 'RESOURCE_EXHAUSTED', *(('INVALID_ARGUMENT', 'UNAUTHENTICATED', 'UNKNOWN', 'INTERNAL') if SOAK else ()))
TOKENS = ({'audience': 'https://kubernetes.default.svc'}, *(({'ttl': -10}, {'sa': 'another'}) if SOAK else ()))
TEXT = 'x' * 300 + ' the real reason is at the end'
PATIENCE_S = 60


def row(pod):
    """(SERVED, its reason) of /pods."""
    page = next(p for p in pod.node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)
    return page['served'], page['why_unserved']


def said(node, *command):
    status, text = node.agentd.ctl_text(*command)
    return status, re.sub(r'\s+', ' ', text)


def wait_well(node, *pods):
    """On every page, and by itself."""
    wait_for('all to be served', lambda: [row(p) for p in pods] == [('yes', '')] * len(pods), PATIENCE_S)
    assert said(node, 'pods')[0] == said(node, 'status')[0] == 0
    assert node.agentd.metric('agentd_pods_unserved') == node.agentd.metric('agentd_pod_problem', f'pod="{pods[0].name}"') == 0


def wait_refused(pod, served, *words):
    """Of /pods, and then of all others."""
    node = pod.node
    why = wait_for(f'{pod.label} to be {served}', lambda: (is_ := row(pod))[0] == served and all(w in is_[1] for w in words) and is_[1],
                   PATIENCE_S)
    for command in (('pods',), ('pods', pod.label), ('status',)):
        status, text = said(node, *command)
        assert status == 1 and all(w in text for w in words), (command, text)
    assert f'{pod.label} is {"held" if served == "held" else "not served"}: ' in said(node, 'status')[1]
    assert node.agentd.metric('agentd_pods_unserved', f'served="{served}"') >= 1
    return why


def refused_streams(client, server, code):
    """The pod keeps what it has, and agentd is ready all the time."""
    node, counted = client.node, client.node.agentd.metric('agentd_xds_refused_streams_total', f'code="{code}"')
    node.istiod.order('fail', what='ads', count=1000, code=code, text=TEXT)
    node.istiod.order('goaway', grace=0)
    served = 'held' if code == 'RESOURCE_EXHAUSTED' else 'no'
    why = wait_refused(client, served, f'istiod: {code}: xxx', ' ... ', 'x the real reason is at the end')
    assert len(why) < 300
    assert node.agentd.metric('agentd_xds_refused_streams_total', f'code="{code}"') > counted
    assert node.agentd.metric('agentd_pod_problem', 'pod="client"', 'service="ads"') == 1
    assert 'the real reason is at the end' in said(node, 'xds')[1]
    # The probes of agentd ask other questions: a restart would mend nothing, and an update may go on.
    assert said(node, 'log')[0] == said(node, 'ready')[0] == 0
    node.istiod.order('fail', what='ads', count=0, code=code)
    wait_well(node, client, server)


def useless_token(client, server, claims):
    client.write_token(**claims)
    wait_refused(client, 'no', 'no certificate: token: ')
    client.write_token()
    wait_well(client.node, client, server)


def account_made_again(client, server):
    """Another pod of the account has a token of its newer self; the kubelet goes on giving the older one from its cache."""
    node = client.node
    client.write_token(age=10)
    twin = node.pod('twin', sa=client.sa, manifest=False)
    twin.write_token(account='again')
    twin.write_manifest()
    wait_refused(client, 'held', 'its token is of an account demo/client-sa that was deleted and made again', 'tokenExpirationSeconds')
    assert row(server) == ('yes', '')
    client.write_token(account='again')
    wait_well(node, client, server)


def refused_listeners(client, server):
    """Envoy's own words are on the page of its stream alone."""
    node = client.node
    node.istiod.set(client.id, listeners=[mesh.BROKEN_LISTENER])
    why = wait_refused(client, 'no', 'its Envoy refused the last push of Listener')
    assert 'broken' not in why and 'broken' in said(node, 'xds', client.label)[1]
    assert row(server) == ('yes', '')
    node.istiod.set(client.id, **mesh.client(server))
    wait_well(node, client, server)


def test_a_pod_with_an_envoy(pair):
    client, server = pair
    wait_well(client.node, client, server)
    for code in CODES:
        refused_streams(client, server, code)
    for claims in TOKENS:
        useless_token(client, server, claims)
    account_made_again(client, server)
    refused_listeners(client, server)
    for page in 'pods', 'xds':
        assert client.node.agentd.ctl(page, client.label)[page][0]['warming'] == []  # its Envoy was asked
    assert client.netns.http(mesh.OUTBOUND)[0] == 200


def refused_certificate(node, name, *words, **order):
    """A pod of a new account asks in vain, until istiod is well again."""
    pod = node.pod(name)
    pod.wait_served()
    wait_refused(pod, 'no', 'no certificate: ', *words)
    if order['do'] != 'resume':  # else there is nothing to say of an answer
        assert all(w in said(node, 'certs')[1] for w in words)
    assert node.agentd.metric('agentd_pod_problem', f'pod="{name}"', 'service="cert"') == 1
    node.istiod.order(**order)
    wait_for('its certificate', lambda: row(pod) == ('unasked', ''), PATIENCE_S)
    assert said(node, 'status')[0] == said(node, 'pods')[0] == 0


def test_refused_certificates(node):
    """By code, and by agentd itself; a pod has no first certificate."""
    node.agentd.start()
    for code in CODES:
        node.istiod.order('fail', what='csr', count=1000, code=code, text=TEXT)
        refused_certificate(node, code.lower().replace('_', '-'), f'{code}: xxx', 'x the real reason is at the end',
                            do='fail', what='csr', count=0, code=code)
    node.istiod.order('bad-certificates', of={'*': 'other-key'})
    refused_certificate(node, 'spoiled', 'answer of istiod: ', do='bad-certificates', of={})
    if not SOAK:
        return
    node.istiod.order('pause', what='csr')  # nothing is said in the first ten seconds
    refused_certificate(node, 'paused', 'istiod has not answered yet', do='resume', what='csr')


@pytest.mark.skipif(not SOAK, reason='certificates have to end: make soak')
def test_a_renewal_that_is_refused_holds_and_then_ends(node):
    node.istiod.order('ttl', seconds=10)
    client, server = start_pair(node)
    node.istiod.order('fail', what='csr', count=1000, code='PERMISSION_DENIED', text='not any more')
    wait_refused(client, 'held', 'its certificate is not renewed: ', 'PERMISSION_DENIED: not any more')
    wait_refused(client, 'no', 'no certificate: ', 'PERMISSION_DENIED: not any more')
    node.istiod.order('fail', what='csr', count=0, code='PERMISSION_DENIED')
    node.istiod.order('ttl', seconds=3600)
    wait_well(node, client, server)


@pytest.mark.skipif(not SOAK, reason='a minute has to pass: make soak')
def test_what_has_been_warming_for_a_minute(pair):
    """Envoy accepted both, and waits for routes and a secret that nobody sends; it says it again on its own gauges."""
    client, server = pair
    node = client.node
    node.istiod.set(client.id, **mesh.never_warm(server))
    for page in 'pods', 'xds':
        warming = wait_for(f'{page} to name them', lambda p=page: len(w := node.agentd.ctl(p, client.label)[p][0]['warming']) == 2 and w)
        assert {(w['type'], w['name']) for w in warming} == {('Cluster', 'no-secret'), ('Listener', 'no-routes')}
        status, text = said(node, page, client.label)
        assert status == 1 and 'no-secret' in text and 'no-routes' in text
    wait_refused(client, 'no', 'its Envoy has not answered the last push of Cluster')  # of listeners it has
    gauges = client.netns.http(STATS, '/stats/prometheus')[1]
    for gauge in 'envoy_cluster_manager_warming_clusters', 'envoy_listener_manager_total_listeners_warming':
        assert re.search(rf'^{gauge}(?:{{}})? 1$', gauges, re.M), gauge
    node.istiod.set(client.id, **mesh.client(server))
    wait_for('both to go', lambda: node.agentd.ctl('pods', client.label)['pods'][0]['warming'] == [])
    wait_well(node, client, server)
