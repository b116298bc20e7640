"""agentctl as people use it: completion in a real bash, a report without secrets, a screen that is drawn anew."""
import contextlib
import http.server
import json
import os
import pty
import re
import subprocess
import tarfile
import threading

import pytest
import yaml

from . import mesh
from .run import wait_for


@pytest.fixture(name='node')
def fixture_node(make_node):
    node = make_node(mode='release')
    node.agentd.start()
    return node


def test_a_report_has_every_page_and_no_secret(node, tmp_path):
    pods = [node.pod(name).wait_served() for name in ('web', 'db')]
    file = tmp_path / 'report.tar'
    code, said = node.agentd.ctl_text('bug-report', file)
    assert code == 0 and 'tokens and keys are not' in said and file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as tar:
        assert {m.name for m in tar} == {'agentd/machine.txt'} | {f'agentd/{page}.json' for page in (
            'status', 'pods', 'certs', 'xds', 'redirect', 'dns', 'logging', 'version')}
        reported = json.loads(tar.extractfile('agentd/pods.json').read())['pods']
        assert {p['uid'] for p in reported} == {p.uid for p in pods}
    everything = file.read_bytes()
    for secret in (*pods[0].tokens, *pods[1].tokens, 'PRIVATE KEY', 'eyJ'):
        assert secret.encode() not in everything, secret
    assert node.agentd.ctl_text('bug-report', file)[0] == 2  # nothing is overwritten
    node.agentd.kill()
    other = tmp_path / 'other.tar'
    assert node.agentd.ctl_text('bug-report', other)[0] == 3 and not other.exists()


def test_a_dump_is_what_envoy_has_and_no_key(node):
    pod = node.pod('web')
    code, said = node.agentd.ctl_text('config-dump', 'demo/web')
    assert code in (1, 4) and said, said  # agentd may not have seen its manifest yet
    pod.start_envoy().wait_ready()
    dump = node.agentd.ctl('config-dump', 'demo/web')
    kinds = {c['@type'].rpartition('.')[2] for c in dump['configs']}
    assert {'BootstrapConfigDump', 'ClustersConfigDump', 'SecretsConfigDump'} <= kinds
    booted = next(c for c in dump['configs'] if c['@type'].endswith('.BootstrapConfigDump'))
    assert '~web.demo~' in booted['bootstrap']['node']['id']
    assert 'BEGIN CERTIFICATE' not in json.dumps(dump) and 'PRIVATE KEY' not in json.dumps(dump)
    code, text = node.agentd.ctl_text('config-dump', pod.uid, '-o', 'yaml')
    assert code == 0 and yaml.safe_load(text).keys() == dump.keys()
    assert node.agentd.ctl_text('config-dump', 'demo/nobody')[0] == 4
    pod.envoy.stop()
    code, said = node.agentd.ctl_text('config-dump', 'demo/web')
    assert code == 1 and re.search('does its Envoy run|has it ended', said), said


def test_names_are_of_what_was_pushed(node):
    pod = node.pod('web')
    node.istiod.set(pod.id, **mesh.client(pod))
    pod.start_envoy().wait_ready()
    code, text = node.agentd.ctl_text('xds', 'demo/web', '--names')
    rows = {tuple(line.split()[:3]) for line in text.splitlines()}
    assert code == 0 and {('Cluster', 'active'), ('Listener', 'active'), ('Secret', 'active')} <= {row[:2] for row in rows}, text
    assert {name for kind, _, name in rows if kind == 'Secret'} == {'default', 'ROOTCA'}, text
    assert 'xds-grpc' not in text  # of the bootstrap
    node.istiod.set(pod.id, listeners=[mesh.BROKEN_LISTENER])
    refused = wait_for('the refusal', lambda: (found := [
        n for n in node.agentd.ctl('xds', 'demo/web', '--names')['names'] if n['state'] == 'refused']) and found)
    assert [n['name'] for n in refused] == ['broken'] and refused[0]['why']
    assert node.agentd.ctl_text('xds', 'demo/web', '--names')[0] == 1


CLUSTER = {'version_info': '2026-11-28T20:00:00Z/17', 'last_updated': '2026-11-28T20:00:00.000Z', 'cluster': {
    '@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster', 'name': 'outbound|80||a.demo.svc.cluster.local', 'type': 'EDS',
    'eds_cluster_config': {'eds_config': {'ads': {}, 'initial_fetch_timeout': '0s', 'resource_api_version': 'V3'}, 'service_name': 'a'},
    'connect_timeout': '10s', 'metadata': {'filter_metadata': {'istio': {'services': [{'host': 'a', 'name': 'a', 'namespace': 'demo'}]}}}}}


@contextlib.contextmanager
def in_place_of_envoy(pod, body):
    """What the pod's admin port answers to everything, from a process that lives there."""
    with pod.netns.inside():
        server = http.server.HTTPServer(('127.0.0.1', 15000), type('Answer', (http.server.BaseHTTPRequestHandler,), {
            'do_GET': lambda self: (self.send_response(200), self.send_header('Content-Length', str(len(body))), self.end_headers(),
                                    self.wfile.write(body)), 'log_message': lambda *_: None}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    lives = subprocess.Popen(pod.netns.command('sleep', '60'))
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        lives.kill()
        lives.wait()


OF_ITSELF = 16 << 20  # a stack of 8 MiB in it


def test_an_answer_costs_no_more_than_four_times_its_bytes(node):
    """As Envoy writes it, and as who listens there instead could: agentctl is root.  With less memory it would be no exit status of its own."""
    pod = node.pod('web')
    pod.start_envoy().wait_ready()
    pod.envoy.stop()
    listed = {'configs': [{'dynamic_active_clusters': [CLUSTER] * 6_000}]}
    asked = ('config-dump', '-o', 'yaml'), ('xds', '--names', '-o', 'json'), ('certs', '--envoy')
    for body, codes in ((json.dumps(listed, indent=1).encode(), {0}),
                        (b'{"configs":[{"dynamic_listeners":[' + b'{},' * 1_000_000 + b'{}]}]}', {0, 1}),
                        (b'{"certificates":[{"ca_cert":[' + b'{},' * 1_000_000 + b'{}]}]}', {0, 1}),
                        (b'{"a":"' + b'x' * (4 << 20) + b'"}', {0}), (b'[' * (4 << 20), {1})):
        with in_place_of_envoy(pod, body):
            for noun, *options in asked:
                r = subprocess.run(['prlimit', f'--data={4 * len(body) + OF_ITSELF}', *node.agentd.program('agentctl'),
                                    '--run', node.agentd.run, noun, 'demo/web', *options], capture_output=True, check=False)
                assert r.returncode in codes and (r.stdout or b"not Envoy's answer" in r.stderr), (noun, options, body[:40], r.stderr)


def completed(node, *words):
    """What bash offers for the last of the words."""
    script = 'eval "$(agentctl completion)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _agentctl; printf "%s\\n" "${COMPREPLY[@]}"'
    r = subprocess.run(['bash', '-c', script, 'bash', 'agentctl', *words], text=True, capture_output=True, check=True, timeout=60,
                       env={**os.environ, 'PATH': f'{node.agentd.program("agentctl")[0].parent}:{os.environ["PATH"]}'})
    assert not r.stderr
    return r.stdout.split()


def test_bash_completes_words_and_yaml_is_the_same_answer(node):
    assert completed(node, 'st') == ['status']
    assert {'pods', 'certs', 'redirect', 'bug-report', '--version'} <= set(completed(node, ''))
    assert completed(node, 'redirect', 'ex') == ['explain'] and '--uid' in completed(node, 'redirect', '--')
    assert completed(node, 'version', '--d') == ['--deps']
    node.pod('web').wait_served()
    cert = wait_for('the certificate', lambda: next((c for c in node.agentd.ctl('certs')['certificates'] if c['serial']), None))
    assert cert['root_not_after'] > cert['not_after'] and cert['chain_not_after'] == ''  # the development CA has no intermediate
    code, text = node.agentd.ctl_text('certs')
    assert code == 0 and max(map(len, text.splitlines())) <= 80 and re.search(r'^demo/web +\d+h +\d+h +- +\d+d +1 ', text, re.M), text
    for page in ('pods', 'version', 'log', 'redirect'):
        code, text = node.agentd.ctl_text(page, '-o', 'yaml')
        assert yaml.safe_load(text) == node.agentd.ctl(page), text


def test_watch_draws_anew(node):
    """On a terminal; a file or a pipe gets one after the other."""
    program = [*map(str, node.agentd.program('agentctl')), '--run', str(node.agentd.run), 'version', '-w']
    ours, theirs = pty.openpty()
    with subprocess.Popen(program, stdout=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        seen = b''
        while seen.count(b'\x1b[H\x1b[2J') < 2:
            seen += os.read(ours, 4096)
        process.kill()
    os.close(ours)
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        assert b'\x1b' not in process.stdout.read(20)
        process.kill()
