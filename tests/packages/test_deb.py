"""The Debian package in a fresh Debian: installed by apt, upgraded under a systemd, removed, purged."""
import gzip
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest

from tests.e2e.conftest import measured
from tests.e2e.machine import STUBS
from tests.e2e.run import Cgroup, Process, sh, wait_for
from tests.e2e.test_check import root_of

from .conftest import BUILD, VERSION, VERSION_TEXT
from .test_image import build, digest, epoch

HERE = Path(__file__).parent
ARCH = sh('dpkg', '--print-architecture').strip()
DEB = next((BUILD / 'deb').glob(f'agentd_{VERSION}+*.{VERSION_TEXT.partition("+")[2]}_{ARCH}.deb'), BUILD)  # the day is between
UNITS = ('agentd.service', 'agentd-state.service', 'agentd-gate.service', 'agentd-envoy@x.service')
PLAIN = {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C.UTF-8', 'DEBIAN_FRONTEND': 'noninteractive',
         **{k: v for k, v in os.environ.items() if k.endswith('_proxy')}}


def run(*argv, timeout=300):
    """(exit status, all it said)"""
    r = subprocess.run([str(a) for a in argv], text=True, capture_output=True, timeout=timeout, check=False, env=PLAIN)
    return r.returncode, r.stdout + r.stderr


@pytest.fixture(scope='module')
def root():
    """A bare Debian 12."""
    with tempfile.TemporaryDirectory(dir='/var/tmp', prefix='agentd-deb.') as folder:
        path = Path(folder)
        path.chmod(0o755)
        status, text = run('debootstrap', '--variant=minbase', '--include=systemd,ca-certificates', 'bookworm', path, timeout=600)
        assert status == 0, text
        for file in ('/etc/resolv.conf', '/etc/ssl/certs/ca-certificates.crt'):
            shutil.copy(file, path / file[1:])
        yield path


def inside(root, *argv):
    status, text = run(HERE / 'container', root, '--', *argv, timeout=600)
    assert status == 0, f'{argv}: {status}\n{text}'
    return text


class Machine:
    """A systemd that runs in the root."""

    def __init__(self, root, log, cgroup):
        units = root / 'units'
        units.mkdir()
        for name in STUBS:
            (units / f'{name}.target').write_text(f'[Unit]\nDescription={name}\nDefaultDependencies=no\n')
        self._process = Process([HERE / 'machine', root], log, cgroup)
        self._init = wait_for('systemd to start', self._find_init)
        wait_for('systemd to be up', lambda: self.run('systemctl', 'is-system-running')[1].strip() == 'running')

    def _find_init(self):
        assert self._process.running(), self._process.tail(40)
        children = Path(f'/proc/{self._process.pid}/task/{self._process.pid}/children').read_text().split()
        return next((c for c in children if Path(f'/proc/{c}/comm').read_text().strip() == 'systemd'), None)

    def run(self, *argv):
        return run('nsenter', '-t', self._init, '--pid', '--mount', '--cgroup', '--net', '--root', '--wd', *argv)

    def do(self, *argv):
        status, text = self.run(*argv)
        assert status == 0, f'{argv}: {status} {text}\n{self._process.tail(40)}'
        return text

    def show(self, *properties):
        lines = self.do('systemctl', 'show', '-p', ','.join(properties), 'agentd.service').splitlines()
        found = dict(line.partition('=')[::2] for line in lines)
        return [found[p] for p in properties]

    def worker(self, before=None):
        """Its pid, when agentd is ready with another one than that."""
        def told():
            state, text = self.show('ActiveState', 'StatusText')
            found = re.fullmatch(r'1 pods, worker (\d+)', text)
            return state == 'active' and found and found[1] != before and found[1]
        return wait_for('agentd to be ready', told)


def newer(tmp_path):
    """The same package as the next version."""
    tree = tmp_path / 'newer'
    sh('dpkg-deb', '-R', DEB, tree)
    control = tree / 'DEBIAN/control'
    text, n = re.subn('^(Version: .*)$', r'\1+1', control.read_text(), flags=re.M)
    assert n == 1
    control.write_text(text)
    sh('dpkg-deb', '--root-owner-group', '-b', tree, tmp_path / 'newer.deb')
    return tmp_path / 'newer.deb'


def test_lintian_says_nothing():
    status, text = run('lintian', '--allow-root', '--display-info', '--fail-on', 'error,warning,info', DEB)
    assert (status, text) == (0, '')
    measured.append(f'.deb: {DEB.stat().st_size / (1 << 20):.1f} MiB')


def test_another_build_elsewhere_gives_the_same_bytes(tmp_path):
    assert digest(build('deb', tmp_path / 'elsewhere', SOURCE_DATE_EPOCH=epoch()) / 'deb' / DEB.name) == digest(DEB)


def test_a_life(root, this_run, tmp_path):
    """Installed, checked, started, upgraded, removed, purged."""
    pod = uuid.uuid4()
    before = files(root)
    shutil.copy(DEB, root / 'agentd.deb')
    inside(root, 'apt-get', 'update', '-q')
    inside(root, 'apt-get', 'install', '-yq', '--no-install-recommends', '/agentd.deb')
    # As agentd.env says it; an upgrade is tried with it, too.
    roots, settings = root / 'etc/agentd/root-cert.pem', root / 'etc/agentd/agentd.env'
    roots.write_text(root_of(1))
    settings.write_text(settings.read_text().replace('#AGENTD_FLAGS=', 'AGENTD_FLAGS='))
    is_installed(root)
    manifests = root / 'etc/agentd/pods.d'
    (manifests / f'{pod}.yaml').write_text(f'uid: {pod}\nname: web\nnamespace: demo\nservice_account: web\n')
    shutil.copy(newer(tmp_path), root / 'newer.deb')

    cgroup = Cgroup(f'{this_run[1].below_root()}/deb')
    machine = Machine(root, tmp_path / 'machine.log', cgroup)
    try:
        mount = Path('/run/agentd/pods') / str(pod) / 'mount'
        assert machine.show('ActiveState', 'UnitFileState') == ['inactive', 'disabled']
        machine.do('systemctl', 'enable', '--now', 'agentd.service')
        worker = machine.worker()
        main = machine.show('MainPID')
        machine.do('test', '-S', mount / 'socket')
        machine.do('dpkg', '-i', '/newer.deb')
        assert machine.worker(worker)
        assert machine.show('MainPID', 'NRestarts') == [*main, '0']  # reloaded, not started again
        machine.do('dpkg', '-r', 'agentd')
        assert machine.show('ActiveState') == ['inactive']
        machine.do('test', '-d', mount)  # of an Envoy that may still run
        machine.do('mountpoint', '-q', '/run/agentd/state')
        (manifests / f'{pod}.yaml').unlink()
        roots.unlink()
        machine.do('dpkg', '-P', 'agentd')
        assert machine.run('test', '-e', '/run/agentd')[0] == 1
        assert 'agentd' not in machine.do('cat', '/proc/self/mountinfo').replace(str(root), '')
    finally:
        cgroup.remove()
    inside(root, 'apt-get', 'autoremove', '-yq', '--purge')
    assert {f for f in files(root) - before if 'agentd' in f} == {'/agentd.deb'}


def files(root):
    return {'/' + p.relative_to(root).as_posix() for top in ('etc', 'usr', 'lib', 'var', '.') for p in (root / top).rglob('*')
            if p.relative_to(root).parts[0] not in ('proc', 'sys', 'dev', 'run', 'tmp', 'units')}


def is_installed(root):
    passwd = {line.split(':')[0]: line.split(':') for line in (root / 'etc/passwd').read_text().splitlines()}
    assert passwd['agentd-envoy'][2] == '1337' and int(passwd['agentd'][2]) < 1000
    text = inside(root, 'agentd', '--check', '--root-file', '0=/etc/agentd/root-cert.pem')
    assert re.search(r'^ok +worker +starts', text, re.M) and 'PROBLEM' not in text, text
    assert inside(root, 'agentctl', '--version') == f'agentctl {VERSION_TEXT}\n'
    assert (root / 'etc/agentd/pods.d').is_dir()
    assert inside(root, 'dpkg-query', '-W', '-f', '${Conffiles}', 'agentd').split()[0] == '/etc/agentd/agentd.env'
    for page in ('man8/agentd.8', 'man8/agentd-worker.8', 'man8/agentd-injector.8', 'man1/agentctl.1', 'man5/agentd.yaml.5'):
        assert (root / f'usr/share/man/{page}.gz').is_file()
    for name, (program, end) in {'agentctl.1': ('agentctl', 'exit status'), 'agentd.8': ('agentd', 'Flags that are keys'),
                                 'agentd.yaml.5': ('agentd-worker', '\n\n'), 'agentd-injector.8': ('agentd-injector', '--help')}.items():
        page = gzip.decompress((root / f'usr/share/man/man{name[-1]}/{name}.gz').read_bytes()).decode()
        for word in re.findall(r'^  (?:--)?([a-z][\w-]*) ', inside(root, program, '--help').partition(end)[0], re.M):
            assert word in page or word.replace('-', '_') in page, f'{name}: {word}'
    # Envoy is not Debian's, and not in the package.
    (root / 'usr/local/bin/envoy').symlink_to('/bin/true')
    assert inside(root, 'systemd-analyze', 'verify', '--man=no', '--recursive-errors=no',
                  *(f'/lib/systemd/system/{unit}' for unit in UNITS)) == ''
    (root / 'usr/local/bin/envoy').unlink()
