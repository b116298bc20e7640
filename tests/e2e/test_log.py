"""The log of the process pair is one stream: format and levels of its settings are those of both programs."""
import json
import os
import signal
import subprocess

import pytest
import yaml

from .node import BUILD, MODE, READY, Said
from .run import TOP, wait_for
from .test_upgrade import Release, beside

VALUES = yaml.safe_load((TOP / 'helm/agentd/values.yaml').read_text())


def entries(agentd):
    """Every line, also of stdout: whatever is none fails."""
    return [json.loads(line) for line in agentd.log.read_text().splitlines()]


def broker_says(agentd):
    return ' | '.join(e['msg'] for e in entries(agentd) if e['scope'] == 'broker')


def refuse_an_upgrade(node, release):
    """Its lines."""
    said = Said(node.agentd)
    release.install('agentd', '/bin/false')
    node.agentd.process.send(signal.SIGUSR2)
    said.wait('no upgrade, agentd ')
    release.install_all()
    return said.text()


@pytest.mark.parametrize('flag', [['--log-json=true'], []], ids=['flag', 'file'])
def test_every_line_of_the_chart_s_agentd_is_json(make_node, flag):
    """The chart says it twice: the flag is for what comes before agentd.yaml was read."""
    node = make_node()
    release = Release(node.agentd)
    node.agentd.settings.update(log_json=VALUES['logJson'], log_level=VALUES['logLevel'])
    node.agentd.flags = [*flag, '--worker-user=4711']
    node.agentd.start()
    said = Said(node.agentd)
    os.kill(node.agentd.worker_pid(), signal.SIGKILL)
    said.wait(READY)
    said = Said(node.agentd)
    node.agentd.process.send(signal.SIGUSR2)
    said.wait(READY)
    refuse_an_upgrade(node, release)
    release.install('agentd-worker', '/bin/false')  # the trial itself says what is wrong
    said = Said(node.agentd)
    node.agentd.process.send(signal.SIGUSR2)
    said.wait('no upgrade, agentd ')
    release.install_all()
    old, node.agentd = node.agentd, beside(node, 'new')
    node.agentd.settings, node.agentd.flags = old.settings, [*flag, '--take-over']
    node.agentd.start()
    assert old.process.wait() == 0
    assert node.agentd.stop() == 0
    for text in ('run directory', 'the worker ended: signal 9', 'takes over', 'an upgrade is tried', 'the trial went well',
                 'its check failed', 'has taken over'):
        assert text in broker_says(old), text
    for text in ('took over', 'run directory', 'Terminated: ending'):
        assert text in broker_says(node.agentd), text
    assert {e['scope'] for e in entries(old)} > {'broker', 'agent'}


def test_a_wrong_flag_is_said_as_the_log_is(make_node):
    node = make_node()
    node.agentd.flags = ['--log-json', '--kubelet-rot=/k']
    with pytest.raises(RuntimeError):
        node.agentd.start()
    assert [e['msg'] for e in entries(node.agentd)] == [
        '--kubelet-rot: no such flag; nearest: --kubelet-root (see agentd --help)']


@pytest.mark.parametrize('flag, why', [
    ('--tls-kye=/k', '--tls-kye: no such flag; nearest: --tls-key'), ('--tls-ke=/k', '--tls-ke: no such flag; nearest: --tls-key'),
    ('--look-m=1', '--look-m: no such flag; nearest: --listen'), ('--mesh', '--mesh needs a value: FILE'),
    ('--help=1', '--help takes no value'), ('jsn', 'jsn: no such flag; nearest: --mesh'),
])
def test_the_injector_says_a_wrong_flag_as_the_log_is(flag, why):
    program = BUILD / MODE / 'agentd-injector'
    done = subprocess.run([program, '--log-json', flag], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert [json.loads(line)['msg'] for line in done.stderr.splitlines()] == [f'{why} (see agentd-injector --help)']


def test_levels_reach_the_broker(make_node):
    node = make_node()
    release = Release(node.agentd)
    node.agentd.settings['log_level'] = 'default:debug,broker:error'
    node.agentd.tells = False
    node.agentd.start()
    assert 'scope=broker' not in node.agentd.log.read_text()  # it was held, and is not wanted
    assert 'an upgrade is tried' not in refuse_an_upgrade(node, release)
    assert node.agentd.ctl('log')['broker'] == 'error'
    status, text = node.agentd.ctl_text('log', 'broker:info')
    assert status == 0 and 'broker' in text
    wait_for('the broker to say more', lambda: 'an upgrade is tried' in refuse_an_upgrade(node, release))
    node.agentd.ctl_text('log', 'default:error')
    wait_for('the broker to say less', lambda: 'an upgrade is tried' not in refuse_an_upgrade(node, release))
