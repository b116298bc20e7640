"""The commands that the documents print: those of agentctl are run, each flag of agentd is one that it has, each target of make is there."""
import json
import math
import re
import shlex

from .run import TOP, sh, wait_for
from .test_push_memory import LIMIT_MIB

DOCUMENTS = [TOP / 'README.md', TOP / 'CONTRIBUTING.md', *sorted((TOP / 'docs').glob('**/*.md')), TOP / 'helm/agentd/README.md']
# They do not end, or write where the machine's own files are: the words alone are looked at.
NOT_RUN = ('redirect trace', 'manifest')
# What a document's own files are here.
POD = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'a', 'namespace': 'demo'},
       'spec': {'containers': [{'name': 'a', 'image': 'a'}]}}


def commands(program):
    """{command: where it stands}, from the fenced blocks: at the head of a line, or behind kubectl exec, a prompt or a pipe."""
    found = {}
    for file in DOCUMENTS:
        for block in file.read_text().split('```')[1::2]:
            for words in re.findall(rf'^(?:.*(?:-- |\$ |\| ))?({program} [^#|\n]*)', block, re.M):
                if not words.startswith(f'{program} pods: '):
                    found[words.strip()] = file.name
    return found


def variants(command):
    """With and without what is in brackets, with our pod's names and files."""
    full = re.sub(r'[\[\]]', '', command)
    least = re.sub(r'\[.*\]', '', command)
    names = {'POD': 'demo/web-0', 'SA': 'demo/web', 'NAME': 'web-0.demo', 'PODS': 'pods.json', 'FILE': 'report.tar', '-': 'pods.json'}
    for text in {full, least}:
        yield [names.get(w, w) for w in shlex.split(text)][1:]


def test_each_command_of_agentctl_is_understood(make_node, tmp_path):
    node = make_node(mode='release')
    node.capture()
    node.agentd.start()
    node.pod('web-0', sa='web').wait_served()
    wait_for('its certificate', lambda: node.agentd.ctl_text('certs', 'demo/web')[0] == 0)
    for name, text in {'app.yaml': json.dumps(POD), 'values.json': '{"global": {"hub": "a", "tag": "b"}}', 'mesh.yaml': '{}',
                       'pods.json': json.dumps({'kind': 'List', 'apiVersion': 'v1', 'items': []})}.items():
        (tmp_path / name).write_text(text)
    found, ran = commands('agentctl'), 0
    for command, where in found.items():
        for words in variants(command):
            if ' '.join(words).startswith(NOT_RUN):
                words = [words[0], '--help']
            words = [str(tmp_path / w) if w in ('report.tar', 'pods.json', 'app.yaml', 'values.json', 'mesh.yaml') else w for w in words]
            code, said = node.agentd.ctl_text(*words)
            assert code in ((0, 1, 4) if words[0] == 'dns' else (0, 1)), (where, command, code, said)
            ran += 1
    assert ran >= len(found) >= 25


def test_each_flag_and_each_target_is_there(make_node):
    program = make_node(mode='release').agentd.program('agentd')
    known = set(re.findall(r'--([a-z-]+)', sh(*program, '--help'))) | set(re.findall(
        r'^  --([a-z-]+)', sh(program[-1].parent / 'agentd-worker', '--help'), re.M))
    for command, where in commands('agentd').items():
        assert set(re.findall(r'--([a-z-]+)', command)) <= known, (where, command)
    files = TOP / 'Makefile', *(f for top in ('tests', 'helm', 'systemd', 'docs') for f in (TOP / top).rglob('*.mk'))
    targets = {t for f in files for t in re.findall(r'^([a-z-]+):', f.read_text(), re.M)}
    for command, where in commands('make').items():
        first = shlex.split(command.partition('&&')[0])[1:]
        assert {w for w in first if re.fullmatch('[a-z-]+', w)} <= targets, (where, command)


def number(file, pattern):
    found = re.search(pattern, (TOP / file).read_text(), re.M)
    assert found, (file, pattern)
    return int(found[1].replace(',', ''))


def test_the_memory_that_is_recommended_is_what_was_measured():
    """One table has the figures; the limit, the chart's request and all who repeat them follow from it."""
    pushed = re.search(r'^  most in the cgroup, sockets included, KiB +([\d,]+) +([\d,]+) +([\d,]+)', (TOP / 'docs/PERFORMANCE.md').read_text(), re.M)
    _, full, large = (int(kib.replace(',', '')) / 1024 for kib in pushed.groups())  # 250 pods, 3 MB each; 50 pods, 20 MB each
    attackers = number('agentd/common/flags.c', r'"pods-memory-mib", "(\d+)"')
    state = number('agentd/broker/base/tmpfs.h', r'BROKER_TMPFS_MIB = (\d+)')
    limit = math.ceil((full + attackers + state) / 128) * 128
    for file, pattern in (('docs/PERFORMANCE.md', r'^\| 250 \|.*\| (\d+)Mi \|'), ('helm/agentd/values.yaml', r'enough\. (\d+)Mi is, for 250 pods'),
                          ('docs/KUBERNETES.md', r'(\d+)Mi is enough for 250 pods'), ('systemd/agentd.service', r'(\d+)M is enough for 250 pods')):
        assert number(file, pattern) == limit, file
    for file in 'docs/PERFORMANCE.md', 'helm/agentd/values.yaml':
        assert number(file, r'(?:at once took |measured\][^:]*: )(\d+)') == math.ceil(full), file
    assert number('helm/agentd/values.yaml', r'^  requests:\n    cpu: 200m\n    memory: (\d+)Mi') == math.ceil(large / 128) * 128
    assert LIMIT_MIB <= limit - attackers - state  # what the tests of a push and of a bad day run within


def test_each_reason_of_the_vex_names_a_test_that_exists():
    known = json.loads((TOP / 'helm/image/vex.json').read_text())
    for cve, why in ((cve, why) for of in known.values() for cve, why in of['cves'].items() if 'justification' in why):
        file, _, name = why['status_notes'].partition('::')
        assert f'def {name}(' in (TOP / file).read_text() if name else (TOP / file).exists(), cve
