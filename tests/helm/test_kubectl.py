"""The plug-in `kubectl agentd`, with a kubectl that answers from files: part of `make test`."""
import json
import os
import subprocess

import pytest
import yaml

from .chart import TOP

KUBECTL = '''#!/usr/bin/env bash
case "$*" in
*" get pods "*) cat "$ANSWERS/pods" ;;
*) pod=$4 status=$(cat "$ANSWERS/$pod.status"); cat "$ANSWERS/$pod.out"; cat "$ANSWERS/$pod.err" >&2
	echo "$*" >>"$ANSWERS/asked"
	[ "$status" = 0 ] || [ -e "$ANSWERS/$pod.unreachable" ] || echo "command terminated with exit code $status" >&2
	exit "$status" ;;
esac
'''
TABLES = {'n1': 'POD     READY  PROBLEM\nd/a     yes\nd/long  no     no token\n', 'n2': 'POD           READY  PROBLEM\nprod/longest         why not\n'}


@pytest.fixture(name='cluster')
def fixture_cluster(tmp_path):
    """A function: what the plug-in says when the nodes answer so, {node: (status, stdout, stderr)}."""
    kubectl = tmp_path / 'kubectl'
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    environment = {**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'ANSWERS': str(tmp_path)}

    def ask(answers, *args):
        (tmp_path / 'pods').write_text(''.join(f'{node} agentd-{node}\n' for node in answers))
        for node, (status, out, err) in answers.items():
            for end, text in (('status', str(status)), ('out', out), ('err', err)):
                (tmp_path / f'agentd-{node}.{end}').write_text(text)
        return subprocess.run([TOP / 'helm' / 'kubectl-agentd', *args], env=environment, text=True, capture_output=True,
                              timeout=30, check=False)

    ask.path = tmp_path
    return ask


def test_tables_become_one_with_a_column_of_nodes(cluster):
    r = cluster({node: (0, text, '') for node, text in TABLES.items()}, 'pods')
    assert r.returncode == 0 and not r.stderr
    assert r.stdout == ('NODE  POD           READY  PROBLEM\n'
                        'n1    d/a           yes\n'
                        'n1    d/long        no     no token\n'
                        'n2    prod/longest         why not\n')


def test_json_and_yaml_are_a_map_of_nodes(cluster):
    answers = {'n1': (0, '{"pods": []}\n', ''), 'n2': (0, '{\n "pods": [1]\n}\n', '')}
    assert json.loads(cluster(answers, 'pods', '-o', 'json').stdout) == {'n1': {'pods': []}, 'n2': {'pods': [1]}}
    answers = {'n1': (0, 'pods: []\n', ''), 'n2': (0, 'pods:\n  - 1\n', '')}
    assert yaml.safe_load(cluster(answers, '-o', 'yaml', 'pods').stdout) == {'n1': {'pods': []}, 'n2': {'pods': [1]}}


def test_what_is_no_table_has_its_node_above(cluster):
    r = cluster({'n1': (0, 'agentd 1\n', ''), 'n2': (0, 'agentd 2\n', '')}, 'version')
    assert r.stdout == '== n1\nagentd 1\n== n2\nagentd 2\n'


def test_a_name_is_found_on_the_node_that_has_it(cluster):
    missing = (4, '', 'agentctl: d/a: no such name (agentctl pods lists them)\n')
    r = cluster({'n1': missing, 'n2': (0, 'd/a\n  ready yes\n', '')}, 'pods', 'd/a')
    assert r.returncode == 0 and r.stdout == '== n2\nd/a\n  ready yes\n' and not r.stderr
    r = cluster({'n1': missing, 'n2': missing}, 'pods', 'd/a')
    assert r.returncode == 4 and r.stderr.count('no such name') == 1


def test_the_worst_status_counts_and_says_whose_it_is(cluster):
    r = cluster({'n1': (1, TABLES['n1'], ''), 'n2': (0, TABLES['n2'], '')}, 'pods')
    assert r.returncode == 1 and not r.stderr and 'd/a' in r.stdout
    r = cluster({'n1': (3, '', 'agentctl: no agentd\n'), 'n2': (1, TABLES['n2'], '')}, 'pods')
    assert r.returncode == 3 and r.stderr == 'n1: agentctl: no agentd\n' and 'prod/longest' in r.stdout


def test_a_node_that_kubectl_does_not_reach_is_status_3(cluster):
    (cluster.path / 'agentd-n1.unreachable').touch()
    r = cluster({'n1': (1, '', 'Error from server: no route to host\n'), 'n2': (0, TABLES['n2'], '')}, 'pods')
    assert r.returncode == 3 and r.stderr == 'n1: Error from server: no route to host\n'


def test_wrong_usage_is_said_once(cluster):
    wrong = (2, '', 'agentctl: no such noun: pots; nearest: pods (agentctl --help lists all)\n')
    r = cluster({'n1': wrong, 'n2': wrong}, 'pots')
    assert r.returncode == 2 and r.stderr.count('no such noun') == 1
    assert cluster({'n1': wrong}).returncode == 2
    assert cluster({'n1': wrong, 'n2': wrong}, 'pods', '-w').returncode == 2


def test_one_node_is_asked_alone(cluster):
    answers = {node: (0, text, '') for node, text in TABLES.items()}
    r = cluster(answers, '--node', 'n2', 'pods')
    assert r.returncode == 0 and r.stdout == TABLES['n2']
    assert (cluster.path / 'asked').read_text() == '-n agentd-system exec agentd-n2 -c agentd -- agentctl pods\n'
    r = cluster(answers, '--node', 'n', 'pods')
    assert r.returncode == 3 and 'on node n ' in r.stderr
    assert cluster({}, 'pods').returncode == 3
