"""agentd dies, comes back, is upgraded: redirection does not notice (ebpf-redirect.md 10.10)."""
import os
import random
import re
import time

import pytest

from . import clients, mesh, sockets
from .run import wait_for
from .test_redirect import APP, Bystander, captured_pair, live, serve

SOAK = bool(os.environ.get('AGENTD_SOAK'))
KILLS = 200 if SOAK else 6


def requests(pod, cluster, address):
    """How many an Envoy passed on, by its own count."""
    _, text = pod.netns.http(15000, '/clusters')
    return int(re.search(rf'^{cluster}::{address}:{mesh.APP}::rq_total::(\d+)', text, re.M)[1])


def counted(node, pod, rule):
    return node.agentd.ctl('pods', pod.label)['pods'][0]['redirect']['counters'].get(rule, 0)


def answers(client, server):
    status, _ = client.call(clients.get_json, f'http://{server.ip}:{mesh.APP}/')
    return status == 200


@pytest.fixture
def pair(capturing):
    node = capturing(mode='release' if SOAK else 'asan')
    node.agentd.start()
    client, server = captured_pair(node)
    wait_for('the first answer', lambda: answers(client, server))
    return node, client, server


def test_every_connection_passes_both_envoys_whatever_happens_to_agentd(pair):
    node, client, server = pair
    def passed():
        return requests(client, 'mtls', server.ip), requests(server, 'app', server.ip)
    before = passed()
    load = client.load(mesh.APP, server.ip)
    for n in range(KILLS):
        load.more(20)
        time.sleep(random.random() / 20)
        if n % 3 == 2:  # the same programs again, into the same links
            node.agentd.stop()
        else:
            node.agentd.kill()
        load.more(20)  # with nobody there
        node.agentd.start()
    load.more(100)
    counts = load.stop()
    assert counts['failed'] == 0, counts
    # The last request may have been cut by the end of the load.
    done = [now - then for now, then in zip(passed(), before, strict=True)]
    assert all(counts['ok'] <= n <= counts['ok'] + 1 for n in done), (counts['ok'], done)
    assert not counted(node, client, 'original destination lost')


def test_a_new_strict_pod_stays_closed_while_agentd_is_away(capturing):
    node = capturing()
    node.agentd.start()
    pod, peer = node.pod('late').wait_served(), Bystander(node)
    node.pods.append(peer)
    serve(pod, APP, 8080)
    node.agentd.kill()
    assert peer.call(sockets.dropped, pod.ip, 8080)
    node.agentd.start()
    assert peer.call(sockets.dropped, pod.ip, 8080)
    live(pod)
    assert peer.call(sockets.dial, pod.ip, 8080) == 'ConnectionRefusedError'  # there is no Envoy
