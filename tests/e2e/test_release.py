"""What a release says of itself: its version everywhere, what it lacks, and that it can be removed again."""
import os
import re
import shutil
import subprocess

import pytest

from .run import TOP, sh

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
    for name in ('Makefile', 'VERSION', 'CHANGELOG.md', 'SECURITY.md', 'helm/agentd/Chart.yaml', 'tests/tools/release-check'):
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


def test_what_is_installed_can_be_removed(tmp_path):
    (tmp_path / 'usr/local/share').mkdir(parents=True)
    (tmp_path / 'usr/local/share/other').touch()

    def make(target):
        subprocess.run(['make', '-s', '-C', TOP, target, f'DESTDIR={tmp_path}'], check=True, timeout=300, env=CLEAN,
                       stdout=subprocess.DEVNULL)
        return {str(p.relative_to(tmp_path / 'usr/local')) for p in tmp_path.rglob('*') if p.is_file()}
    installed = make('install')
    assert {'sbin/agentd', 'sbin/agentd-worker', 'bin/agentctl', 'share/man/man8/agentd.8', 'lib/systemd/system/agentd.service',
            'share/other'} < installed
    assert make('uninstall') == {'share/other'}
    assert not (tmp_path / 'usr/local/share/agentd').exists()
