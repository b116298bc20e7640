"""Pods of agentd's and pods with pilot-agent in one STRICT mesh."""
import pytest

from tests.e2e import clients

from .conftest import start


def spiffe(pod):
    return f'URI=spiffe://cluster.local/ns/{pod.ns}/sa/{pod.sa}'


def test_mtls_both_ways(world):
    ours, other, theirs = world.pod('ours'), world.pod('other'), world.sidecar('theirs').redirect()
    plain = world.plain('plain')
    start(ours, other, theirs)
    for client, server in (ours, theirs), (theirs, ours), (ours, other):
        status, answer = client.calls(server, '/hello')
        assert (status, answer['path']) == (200, '/hello')
        assert spiffe(client) in answer['xfcc']
    for server in ours, theirs:
        with pytest.raises(OSError):  # STRICT: reset
            plain.call(clients.get_json, f'http://{server.ip}:8080/')
    for pod in ours, other:
        assert world.agentd.ctl_text('pods', pod.label)[0] == 0
    assert world.agentd.ctl_text('status')[0] == 0
    assert world.agentd.metric('agentd_push_unbounded_streams_total') == 0  # istiod passed over the header that marks a stream
    for of in world.agentd.ctl('xds')['xds']:
        for kind, counts in of['ads']['types'].items():
            assert counts['nacked'] == 0, (of['pod'], kind, counts)
