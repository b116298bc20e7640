"""What a release says of itself: its version everywhere, what it lacks, and that it can be removed again."""
import os
import re
import shutil
import subprocess

import pytest

from .node import BUILD
from .run import TOP, sh, wait_for

CLEAN = {k: v for k, v in os.environ.items() if k not in ('AGENTD_COMMIT', 'MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')}


def test_one_version_everywhere(make_node):
    node = make_node(mode='release')
    node.agentd.start()
    said = {sh(*node.agentd.program(name), '--version').split()[1] for name in ('agentd', 'agentctl')}
    said |= {node.agentd.ctl('status')['version'], node.agentd.ctl('version')['agentctl'], node.agentd.ctl('version')['agentd']}
    said |= {re.search('agentd_build_info{version="(.*)"} 1', node.agentd.page('metrics'))[1]}
    said |= {re.search(r'msg="agentd (\S+): run directory', node.agentd.log.read_text())[1]}
    version, = said
    assert re.fullmatch(re.escape((TOP / 'VERSION').read_text().strip()) + r'(\+[0-9a-f]{12}(\.dirty)?)?', version)


@pytest.fixture(name='tree')
def fixture_tree(tmp_path):
    """A repository of what `make version` and release-check look at."""
    class Tree:
        path = tmp_path

        def run(self, *argv):
            return subprocess.run(argv, cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False, env={
                **CLEAN, 'GIT_CONFIG_GLOBAL': '/dev/null', 'GIT_CEILING_DIRECTORIES': str(tmp_path.parent)})

        def commit(self):
            for args in (('init', '-q'), ('add', '-A'), ('-c', 'user.name=x', '-c', 'user.email=x', 'commit', '-qm', 'x')):
                assert self.run('git', *args).returncode == 0
            return self.run('git', 'rev-parse', '--short=12', 'HEAD').stdout.strip()

        def version(self):
            return self.run('make', '-s', 'version').stdout.strip()
    parts = [str(f.relative_to(TOP)) for top in ('agentd', 'docs', 'ebpf', 'helm', 'systemd', 'tests') for f in (TOP / top).rglob('*.mk')]
    for name in ('Makefile', *parts, 'VERSION', 'CHANGELOG.md', 'SECURITY.md', 'helm/agentd/Chart.yaml', 'tests/tools/release-check'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / name, tmp_path / name)
    return Tree()


def test_dirty_trees_say_so(tree):
    number = (tree.path / 'VERSION').read_text().strip()
    assert tree.version() == number  # no repository
    commit = tree.commit()
    assert tree.version() == f'{number}+{commit}'
    with open(tree.path / 'SECURITY.md', 'a', encoding='utf-8') as f:
        f.write('\n')
    assert tree.version() == f'{number}+{commit}.dirty'
    assert tree.commit() != commit and not tree.version().endswith('dirty')


def test_release_check_says_what_is_missing(tree):
    def problems():
        r = tree.run('tests/tools/release-check', 'facts')
        found = [line for line in r.stdout.splitlines() if line.startswith('PROBLEM')]
        assert r.returncode == bool(found), r.stdout + r.stderr
        return found
    (tree.path / 'VERSION').write_text('7.1.0\n')
    tree.commit()
    assert [p.split()[1] for p in problems()] == ['CHANGELOG.md', 'the', 'SECURITY.md']
    (tree.path / 'CHANGELOG.md').write_text('# Changelog\n\n## 7.1.0 (2026-12-01)\n')
    chart, policy = tree.path / 'helm/agentd/Chart.yaml', tree.path / 'SECURITY.md'
    chart.write_text(re.sub('appVersion: .*', 'appVersion: "7.1.0"', chart.read_text()))
    policy.write_text(policy.read_text().replace('agentd.invalid', 'agentd.example'))
    assert [p.split()[1] for p in problems()] == ['nothing']  # differs from the commit
    tree.commit()
    assert not problems()
    tree.run('git', 'tag', 'v7.1.0')
    assert [p.split()[1] for p in problems()] == ['there']


@pytest.fixture(name='make')
def fixture_make(tmp_path):
    """make in these sources, in a path that has a blank."""
    here = tmp_path / 'a path'
    here.mkdir()

    def make(*argv):
        subprocess.run(['unshare', '--mount', '--propagation', 'private', 'sh', '-c', 'mount --bind "$0" "$1" && exec make -s -C "$@"',
                        TOP, here, *argv], check=True, timeout=300, env=CLEAN, stdout=subprocess.DEVNULL)
    return make


def test_what_is_installed_can_be_removed(make, tmp_path):
    root = tmp_path / 'its root'
    local = root / 'usr/local'
    (local / 'share').mkdir(parents=True)
    (local / 'share/other').touch()

    def left():
        return {str(p.relative_to(local)) for p in root.rglob('*') if p.is_file()}
    make('install', f'DESTDIR={root}')
    assert {'sbin/agentd', 'sbin/agentd-worker', 'bin/agentctl', 'share/man/man8/agentd.8', 'lib/systemd/system/agentd.service',
            'share/other'} < left()
    make('uninstall', f'DESTDIR={root}')
    assert left() == {'share/other'}
    assert not (local / 'share/agentd').exists()


def test_a_path_with_a_blank_is_compiled(make, tmp_path):
    """One object, with what was generated before; all of it by tests/tools/clean-room, which has such a path, too."""
    out = tmp_path / 'build'
    shutil.copytree(BUILD / 'gen', out / 'gen')
    make(f'BUILD={out}', f'{out}/release/obj/agentd/common/version.o')
    assert (out / 'release/obj/agentd/common/version.o').exists()


def test_what_is_signed_can_be_checked(tmp_path):
    """By the commands of SECURITY.md, and no more if a byte of it is another one."""
    key, image = tmp_path / 'key', tmp_path / 'build/image'
    image.mkdir(parents=True)
    (image / 'agentd.oci.tar').write_text('the image')
    subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', key], check=True)

    def sign():
        return subprocess.run([TOP / 'helm/image/sign', key], cwd=tmp_path, text=True, capture_output=True, check=False)
    assert sign().returncode == 0
    (tmp_path / 'signers').write_text(f'agentd {key.with_suffix(".pub").read_text()}')
    sums = tmp_path / 'build/SHA256SUMS'

    def verify():
        return subprocess.run(['ssh-keygen', '-Y', 'verify', '-f', tmp_path / 'signers', '-I', 'agentd', '-n', 'agentd',
                               '-s', f'{sums}.sig'], stdin=sums.open(), capture_output=True, check=False).returncode
    assert verify() == 0
    sh('sha256sum', '--check', sums, cwd=image)
    sums.write_text(sums.read_text().replace('agentd.oci', 'other.oci'))
    assert verify() != 0
    (image / 'agentd.oci.tar').unlink()
    assert sign().returncode == 1


def test_the_examples_are_taken(make_node):
    """Those of /usr/share/doc, and of the man page: manifest and settings."""
    node, examples = make_node(mode='release'), TOP / 'systemd/examples'
    manifest = next(examples.glob('*-*.yaml'))
    shutil.copy(manifest, node.agentd.manifests)
    node.agentd.start()
    wait_for('the pod', lambda: [p['uid'] for p in node.agentd.ctl('pods')['pods']] == [manifest.stem])
    answer = node.agentd.ctl('pods')
    assert answer['refused_manifests'] == [] and answer['pods'][0]['unsupported'] == answer['pods'][0]['ignored'] == []
    said = subprocess.run([*node.agentd.program('agentd'), '--check', '--redirect', '--run', node.dir / 'other', '--config', examples / 'agentd.yaml',
                           '--root-file', f'0={node.istiod.root_file}'], text=True, capture_output=True, timeout=60, check=False,
                          env=node.agentd.environment())
    assert said.returncode == 0 and 'roots of istiod' in said.stdout, said


def test_the_man_page_has_every_key_of_a_manifest():
    sources = {name: (TOP / 'agentd' / name).read_text() for name in ('worker/pods/manifest_dir.c', 'mesh/traffic.c')}
    keys = set(re.findall(r'^    \{"(\w+)", read_', sources['worker/pods/manifest_dir.c'], re.M))
    traffic = set(re.findall(r'^    \{"(\w+)",', sources['mesh/traffic.c'].partition('keys[] = {')[2].partition('\n};')[0], re.M))
    sh('make', '-s', '-C', TOP, 'build/man/agentd-manifest.5', env=CLEAN)
    page = (TOP / 'build/man/agentd-manifest.5').read_text().replace('\\', '')
    assert len(keys) >= 12 and len(traffic) >= 15
    assert [k for k in keys | traffic if not re.search(rf'fB{k}fR', page)] == []


def test_a_fuzz_target_is_left_out_until_what_it_is_made_of_changes(tmp_path):
    files = {'tests/fuzz/a_fuzz.c': '#include "a.h"\n', 'tests/fuzz/corpus/a/seed': 'x', 'tests/fuzz/b_fuzz.c': '',
             'agentd/a.h': 'int a(void);\nint a_elsewhere(void);\n', 'agentd/a.c': '#include "deep.h"\n', 'agentd/deep.h': '',
             'agentd/other.c': 'int a_elsewhere(void)\n{\n}\n', 'agentd/none.c': ''}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    passed = tmp_path / 'tests/tools/passed'
    passed.parent.mkdir()
    shutil.copy(TOP / 'tests/tools/passed', passed)

    def new(*how):
        lines = sh(passed, 'new', 'fuzz', *how, 'tests/fuzz/a_fuzz.c', 'tests/fuzz/b_fuzz.c').splitlines()
        return {file: digest for digest, file in map(str.split, lines)}
    (passed.parent / 'PASSED').write_text('\n'.join(new().values()))
    assert not new() and len(new('--here')) == 2
    for name in files:
        (tmp_path / name).write_text(files[name] + ' ')
        wanted = {'agentd/none.c': [], 'tests/fuzz/b_fuzz.c': ['tests/fuzz/b_fuzz.c']}.get(name, ['tests/fuzz/a_fuzz.c'])
        assert list(new()) == wanted, name
        (tmp_path / name).write_text(files[name])
