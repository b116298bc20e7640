"""A new agentd is ready when it serves what the one before served; else that one goes on."""
import contextlib
import os
import signal

import pytest

from . import clients, mesh
from .conftest import measured, start_pair
from .node import Agentd, Said
from .run import wait_for
from .test_redirect import captured_pair

SOAK = bool(os.environ.get('AGENTD_SOAK'))
TRIAL_S = 3
NEVER = 100_000


@contextlib.contextmanager
def refusing(node, what='ads'):
    """The control plane, with words that have their reason at the end."""
    node.istiod.order('fail', what=what, count=NEVER, code='PERMISSION_DENIED', text=f'{"x" * 30} not any more')
    yield
    node.istiod.order('fail', what=what, count=0, code='PERMISSION_DENIED')


def has_own_socket(agentd, *flags):
    agentd.common = list(agentd.flags)  # with its successors
    agentd.flags += [*flags, '--alive', str(agentd.dir / 'alive')]
    return agentd


def asked_itself(agentd, noun):
    """(exit status, text): as the chart's probes ask."""
    return agentd.ctl_text(noun, '--of', agentd.dir / 'alive')


def successor(node, name, *flags, trial_s=TRIAL_S):
    """Its pods, sockets and settings are those of the agentd that runs."""
    new = Agentd(node.dir / name, node.cgroup(name), node.istiod, node.agentd.mode)
    new.run, new.manifests = node.agentd.run, node.agentd.manifests
    new.settings, new.plane = dict(node.agentd.settings), dict(node.agentd.plane)
    new.flags = list(node.agentd.common)
    return has_own_socket(new, '--take-over', '--linger', '--take-over-s', str(trial_s), *flags)


def wait_for_records(node):
    def kept():
        records = [f.read_text().split() for f in (node.agentd.run / 'state/served').iterdir()]
        return len(records) == 2 and all('ads' in r and 'cert' in r for r in records)
    wait_for('both pods to be kept as served', kept)


def settled_pair(node):
    """Two Envoys with traffic, whose services are known to be served."""
    has_own_socket(node.agentd, '--linger')
    pair = start_pair(node)
    wait_for_records(node)
    assert asked_itself(node.agentd, 'ready') == (0, 'ready\n')
    return pair


def test_what_istiod_refuses_now_is_given_back(node):
    client, _ = settled_pair(node)
    load, old = client.load(mesh.OUTBOUND), node.agentd
    new, said = successor(node, 'new', trial_s=2 * TRIAL_S), Said(node.agentd)  # much is asked while it lasts
    with refusing(node):
        new.start()
        assert asked_itself(old, 'alive') == (0, 'alive\n')
        assert asked_itself(old, 'ready') == (0, 'ready: another agentd has the pods\n')
        assert asked_itself(new, 'ready')[0] == asked_itself(new, 'alive')[0] == 1
        wait_for('it to say why not', lambda: 'ads: istiod: PERMISSION_DENIED' in asked_itself(new, 'ready')[1])
        status, text = old.ctl_text('status')
        assert status == 1 and 'had its ads before' in text and 'not any more' in text
        assert 'not any more' in said.wait('has not taken over, this one goes on')
        status, text = asked_itself(new, 'ready')
        assert status == 1 and 'goes on, and is asked again' in text and 'not any more' in text
        assert asked_itself(new, 'alive') == (0, 'alive\n')
        wait_for('the old one to serve again', lambda: asked_itself(old, 'ready') == (0, 'ready\n'))
    # Istiod takes them again, and so does it, after the pause.
    wait_for('the next try', lambda: asked_itself(new, 'ready') == (0, 'ready\n'))
    wait_for('the old one to have nothing left', lambda: 'wait for SIGTERM' in old.log.read_text())
    assert asked_itself(old, 'ready') == (0, 'ready: another agentd has the pods\n')
    node.agentd = new
    load.more(10)
    counts = load.stop()
    assert counts['failed'] == 0
    measured.append(f'given back, and taken over later: {counts["ok"]} requests, 0 failed')
    assert old.stop() == 0


def test_a_wrong_setting_is_given_back(node):
    """And when the old one ends, the new one serves what it can."""
    client, _ = settled_pair(node)
    load, old = client.load(mesh.OUTBOUND), node.agentd
    new, said = successor(node, 'new'), Said(node.agentd)
    new.plane['address'] = '127.0.0.1:1'
    new.start()
    said.wait('has not taken over, this one goes on')
    wait_for('its pause', lambda: f'the next try is in {TRIAL_S} s' in new.log.read_text())
    wait_for('the streams with the old one', lambda: all(x['ads']['connected'] for x in old.ctl('xds')['xds']))
    load.more(5)
    assert load.stop()['failed'] == 0
    assert old.stop() == 0
    wait_for('the new one to take what is left', lambda: new.ctl('status')['settled'])
    node.agentd = new
    wait_for('it to say what is lost', lambda: 'demo/client: cert' in asked_itself(new, 'ready')[1])
    assert asked_itself(new, 'ready')[0] == new.ctl_text('ready')[0] == 1
    assert new.ctl_text('status')[0] == 1


def test_ready_anyway(node):
    settled_pair(node)
    old, new = node.agentd, successor(node, 'new', '--ready-anyway=true')
    with refusing(node):
        new.start()
        wait_for('it to be ready', lambda: asked_itself(new, 'ready') == (0, 'ready\n'))
        node.agentd = new
        wait_for('the old one to have nothing left', lambda: 'wait for SIGTERM' in old.log.read_text())
        status, text = new.ctl_text('status')
        assert status == 1 and 'had its ads before' in text
    assert old.stop() == 0
    wait_for('it to be served', lambda: not new.ctl('status')['lost'])


@pytest.mark.parametrize('end', ('kill', 'stop') if SOAK else ('kill',))
def test_nobody_is_left_to_go_on(node, end):
    """A start after a crash, or a restart: it serves what it can, and says what is lost."""
    settled_pair(node)
    getattr(node.agentd, end)()
    with refusing(node):
        node.agentd.start()
        wait_for('istiod to refuse', lambda: node.agentd.ctl('status')['lost'])
        for status, text in (node.agentd.ctl_text('ready'), asked_itself(node.agentd, 'ready')):
            assert status == 1 and 'demo/' in text
        wait_for('its words', lambda: 'not any more' in asked_itself(node.agentd, 'ready')[1])
        assert node.agentd.ctl_text('status')[0] == 1
    wait_for('it to be ready', lambda: asked_itself(node.agentd, 'ready') == (0, 'ready\n'))
    wait_for('nothing to be wrong', lambda: node.agentd.ctl_text('status')[0] == 0)


def test_an_envoy_that_is_gone_holds_up_nobody(node):
    client, _ = settled_pair(node)
    client.envoy.kill()
    old, new = node.agentd, successor(node, 'new', trial_s=60)
    new.start()
    wait_for('it to be ready', lambda: asked_itself(new, 'ready') == (0, 'ready\n'))
    node.agentd = new
    assert old.stop() == 0


def test_a_hung_broker_is_not_alive(node):
    has_own_socket(node.agentd)
    node.agentd.start()
    wait_for('it to be ready', lambda: asked_itself(node.agentd, 'ready') == (0, 'ready\n'))
    os.kill(node.agentd.process.pid, signal.SIGSTOP)
    try:
        assert node.agentd.ctl_text('log')[0] == 0  # the worker answers
        status, text = asked_itself(node.agentd, 'alive')
        assert status == 3 and 'does not answer' in text
    finally:
        os.kill(node.agentd.process.pid, signal.SIGCONT)
    assert asked_itself(node.agentd, 'alive') == (0, 'alive\n')


def test_redirection_goes_on_when_all_is_given_back(capturing):
    """Programs and rules are the same ones, and the old broker looks after them again."""
    node = capturing()
    old = has_own_socket(node.agentd, '--linger')
    old.start()
    client, server = captured_pair(node)

    def answer():
        status, content = client.call(clients.get_json, f'http://{server.ip}:{mesh.APP}/hello')
        return status == 200 and f'URI={mesh.spiffe(client.ns, client.sa)}' in content['xfcc']
    wait_for('the first answer', answer)
    wait_for_records(node)
    new, said = successor(node, 'new'), Said(old)
    with refusing(node):
        new.start()
        assert answer()
        said.wait('has not taken over, this one goes on')
        assert answer()
        new.process.send(signal.SIGTERM)
        assert new.process.wait() == 0
    wait_for('it to be well', lambda: old.ctl_text('status')[0] == 0)
    assert answer()
