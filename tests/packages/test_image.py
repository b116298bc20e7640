"""The image: unpacked, and started as a node's runtime would."""
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

from tests.e2e import demo, mesh
from tests.e2e.conftest import measured
from tests.e2e.run import TOP, sh

from .conftest import BUILD, VERSION, VERSION_TEXT

HERE = Path(__file__).parent
sys.path.insert(0, str(TOP / 'helm/image'))
from build import differences  # noqa: E402
from debian import Package  # noqa: E402
ARCHITECTURES = ('amd64', 'arm64')
MIB = 1 << 20
QEMU = {'amd64': 'qemu-x86_64-static', 'arm64': 'qemu-aarch64-static'}
TRIPLET = {'amd64': 'x86_64-linux-gnu', 'arm64': 'aarch64-linux-gnu'}
NATIVE = {'x86_64': 'amd64', 'aarch64': 'arm64'}[os.uname().machine]


@pytest.fixture
def root(archive, tmp_path, request):
    """The image's files, for this machine unless the test says which."""
    folder = tmp_path / 'root'
    folder.mkdir(mode=0o755)
    for above in (tmp_path, tmp_path.parent):
        above.chmod(0o755)  # the worker is somebody else
    archive.unpack(getattr(request, 'param', NATIVE), folder)
    yield folder
    shutil.rmtree(folder)


def test_it_holds_two_architectures_and_is_small(archive):
    assert archive.architectures() == list(ARCHITECTURES) and archive.name == VERSION
    for arch in ARCHITECTURES:
        measured.append(f'image {arch}: {archive.size(arch) / MIB:.1f} MiB')
        assert archive.size(arch) <= 15 * MIB
        config = archive.config(arch)['config']
        assert config['Entrypoint'] == ['/usr/local/sbin/agentd']
        assert config['Labels']['org.opencontainers.image.version'] == VERSION_TEXT
        assert config['Labels']['org.opencontainers.image.revision'] == VERSION_TEXT.partition('+')[2]


@pytest.mark.parametrize('root', ARCHITECTURES, indirect=True)
def test_nothing_is_in_it_that_is_not_needed(root):
    files = [f for f in root.rglob('*') if f.is_file()]
    programs = {f.relative_to(root).as_posix() for f in files if f.stat().st_mode & 0o111 and '.so' not in f.name}
    assert programs == {'usr/local/sbin/agentd', 'usr/local/sbin/agentd-worker', 'usr/local/bin/agentctl', 'usr/local/sbin/agentd-injector'}
    assert {f.name for f in files if '.so' in f.name} <= {
        'libc.so.6', 'libm.so.6', 'ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1'}
    for f in root.rglob('*'):
        mode = f.stat().st_mode
        assert f.stat().st_uid == f.stat().st_gid == 0 and not mode & (stat.S_ISUID | stat.S_ISGID), f
        assert not mode & 0o022 or f.name == 'tmp', f
    assert 'agentd:x:1338:1338:' in (root / 'etc/passwd').read_text()
    bundle = (root / 'etc/ssl/certs/ca-certificates.crt').read_text()
    assert bundle.count('BEGIN CERTIFICATE') > 100
    for name in programs:
        elf = sh('readelf', '-hSdlW', root / name)
        assert '.debug_info' not in elf and re.search(r'Flags:.*NOW.*PIE', elf) and 'GNU_RELRO' in elf, name
        assert not re.search(r'(LOAD|STACK).* RWE|TEXTREL|RPATH|RUNPATH', elf), name


def in_container(root, node, *command):
    return [HERE / 'container', root, node.dir, '--', *command]


def versions(sbom):
    """{Debian's source package: version without epoch}"""
    return {p['sourceInfo'].split()[-2]: p['versionInfo'].rpartition(':')[2]
            for p in json.loads(sbom.read_text())['packages'] if 'sourceInfo' in p}


def two_pods(node):
    """A client and a server with real Envoys."""
    node.capture()
    node.agentd.start()
    client, server = (node.pod(name, sa=f'{name}-sa') for name in ('client', 'server'))
    node.istiod.set(client.id, **mesh.captured_client(server))
    node.istiod.set(server.id, **mesh.captured_server([client]))
    server.start_app(mesh.APP, '0.0.0.0')
    for pod in (client, server):
        pod.start_envoy()
    for pod in (client, server):
        pod.wait_ready()
    return client, server


def test_real_envoys_are_served_from_it(make_node, root, sboms):
    """The image's programs as they would run in the DaemonSet: the host's network, its own root."""
    node = make_node(mode='release')
    agentd = node.agentd

    def program(name, _mode=None):
        if name == 'agentd':
            return in_container(root, node, '/usr/local/sbin/agentd')
        return ['nsenter', f'--target={agentd.process.pid}', '--mount', '--root', '/usr/local/bin/agentctl']
    agentd.program = program
    # By its name, so that the C library's name service in the image is needed.
    (root / 'etc/hosts').write_text('127.0.0.1 istiod.from-hosts\n')
    (root / 'etc/resolv.conf').write_text('nameserver 127.0.0.1\n')
    port = agentd.plane['address'].rpartition(':')[2]
    agentd.plane['address'] = f'istiod.from-hosts:{port}'
    client, server = two_pods(node)  # traffic is brought to the Envoys by eBPF
    demo.send(client, server, 3)  # sees to it that mTLS is between them
    assert len(node.istiod.issued()) == 2
    worker = agentd.worker_pid()
    for pid, name in ((agentd.process.pid, 'agentd'), (worker, 'agentd-worker')):
        exe = Path(f'/proc/{pid}/exe')
        assert exe.stat() == (root / 'usr/local/sbin' / name).stat()
        assert not (Path(f'/proc/{pid}/root') / 'bin').exists()
    assert Path(f'/proc/{worker}').stat().st_uid == 1338
    assert {row['name'] for row in agentd.ctl('pods')['pods']} == {'client', 'server'}
    sbom = versions(sboms[NATIVE])
    for library, version in agentd.ctl('version', '--deps')['libraries'].items():
        assert sbom[library.replace('libc', 'glibc')].startswith(version), library


def test_it_checks_a_node(make_node, root):
    node = make_node(mode='release')
    out = sh(*in_container(root, node, '/usr/local/sbin/agentd', '--redirect', '--run', node.dir / 'run', '--root-file',
                          f'0={node.istiod.root_file}', '--check'))
    assert 'ok       worker ' in out and 'ok       eBPF redirection ' in out and 'PROBLEM' not in out, out


OTHER = next(a for a in ARCHITECTURES if a != NATIVE)


@pytest.mark.parametrize('root', [OTHER], indirect=True)
def test_the_other_architecture_starts(root):
    """Emulated; qemu knows no execveat(2), so the broker's check comes as far as its worker's start."""
    shutil.copy(shutil.which(QEMU[OTHER]) or pytest.fail(f'no {QEMU[OTHER]}: tests/tools/deps test-packages'), root / 'qemu')

    def run(program, *args):
        r = subprocess.run([HERE / 'container', root, '--', '/qemu', program, *args],
                           text=True, capture_output=True, timeout=60, check=False)
        return r.returncode, r.stdout + r.stderr
    assert run('/usr/local/sbin/agentd', '--version') == (0, f'agentd {VERSION_TEXT}\n')
    assert run('/usr/local/bin/agentctl', '--version') == (0, f'agentctl {VERSION_TEXT}\n')
    assert run('/usr/local/bin/agentctl', 'status')[0] == 3  # nobody is there
    assert run('/usr/local/sbin/agentd-injector', '--version') == (0, f'agentd-injector {VERSION_TEXT}\n')
    status, text = run('/usr/local/sbin/agentd-worker', '--help')
    assert status == 0 and '--node-name' in text
    status, text = run('/usr/local/sbin/agentd', '--check')
    problems = [line for line in text.splitlines() if line.startswith('PROBLEM')]
    assert 'ok       cgroup v2 ' in text and [p.split()[1] for p in problems] == ['worker'], text
    assert 'exec: Function not implemented' in text


def build(target, tree, **env):
    """A build of the same sources in another directory."""
    (tree / 'build').mkdir(parents=True)
    for name in ('Makefile', 'VERSION', 'LICENSE', 'README.md', 'agentd', 'ebpf', 'proto', 'systemd', 'helm', 'docs', 'tests/tools'):
        (tree / name).parent.mkdir(exist_ok=True)
        sh('cp', '-a', TOP / name, tree / name)
    for sysroot in BUILD.glob('sysroot-*'):
        (tree / 'build' / sysroot.name).symlink_to(sysroot)
    clean = {k: v for k, v in os.environ.items() if k not in ('MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')}
    subprocess.run(['make', '-s', '-j2', target], cwd=tree, check=True, stdout=subprocess.DEVNULL, timeout=600,
                   env={**clean, 'NO_INSTALL': '1', **env})
    return tree / 'build'


def epoch():
    return os.environ.get('SOURCE_DATE_EPOCH') or sh('git', '-C', TOP, 'log', '-1', '--format=%ct').strip()


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_another_build_elsewhere_gives_the_same_bytes(archive, sboms, tmp_path):
    out = build('image', tmp_path / 'elsewhere', SOURCE_DATE_EPOCH=epoch()) / 'image'
    for file in (archive.path, *sboms.values()):
        assert digest(out / file.name) == digest(file), file.name
    measured.append(f'image: sha256 {digest(archive.path)}')


SOURCES = {'grpc', 'openssl', 'libevent', 'libbpf', 'protobuf-c', 'jansson', 'libyaml', 'ldns', 'glibc'}


@pytest.mark.parametrize('arch', ARCHITECTURES)
def test_the_bill_of_materials_is_valid_and_names_what_is_inside(sboms, arch, archive, tmp_path):
    sh(sys.executable, '-m', 'spdx_tools.spdx.clitools.pyspdxtools', '-i', sboms[arch],
       env={**os.environ, 'PYTHONPATH': str(BUILD / 'spdx-tools')})
    found = versions(sboms[arch])
    assert SOURCES <= set(found), SOURCES - set(found)
    archive.unpack(arch, tmp_path)
    worker = (tmp_path / 'usr/local/sbin/agentd-worker').read_bytes()
    assert found['openssl'].split('-')[0].encode() in worker
    # Licences come with what they are of.
    for name in ('LICENSE', 'ebpf-LICENSE', 'proto-NOTICE'):
        assert (tmp_path / 'usr/share/doc/agentd' / name).stat().st_size > 0
    release = '{ID}-{VERSION_ID}'.format(**platform.freedesktop_os_release())
    document = json.loads(sboms[arch].read_text())
    image, *packages = document['packages']
    texts = {x['licenseId']: x['extractedText'] for x in document['hasExtractedLicensingInfos']}
    # It is of this image and no other.
    digest_of = archive.digest(arch)
    assert image['checksums'] == [{'algorithm': 'SHA256', 'checksumValue': digest_of.removeprefix('sha256:')}]
    assert urllib.parse.quote(digest_of, safe='') in image['externalRefs'][0]['referenceLocator']
    assert 'BSD-2-Clause OR GPL-2.0-only' in image['licenseDeclared']
    assert {p['name'] for p in packages if 'sourceInfo' not in p} == {'agentd-sources', 'agentd-ebpf'} | {
        f'agentd-proto-{folder.name}' for folder in (TOP / 'proto').iterdir() if folder.is_dir()}
    for p in (p for p in packages if 'sourceInfo' in p):
        # By its source a scanner finds what is known of a package.
        source, version = re.search(r'source package (\S+) (\S+)', p['sourceInfo']).groups()
        purl = p['externalRefs'][0]['referenceLocator']
        assert f'distro={release}&upstream={urllib.parse.quote(f"{source}@{version}", safe="")}' in purl
        assert re.fullmatch('[0-9a-f]{64}', p['checksums'][0]['checksumValue'])
        assert texts[p['licenseDeclared']] == (tmp_path / 'usr/share/doc' / p['name'] / 'copyright').read_text(errors='replace') != ''


def test_both_architectures_have_the_same_sources(sboms, archive):
    amd64, arm64 = ({p['sourceInfo'] for p in json.loads(sboms[a].read_text())['packages'] if 'sourceInfo' in p} for a in ARCHITECTURES)
    assert amd64 == arm64


class Half:
    """An image of one architecture with one package."""

    def __init__(self, arch, version, build):
        self.arch, self._package = arch, Package('libssl3', version + build, arch, 'openssl', version, '', '')

    def packages(self):
        return {'STATIC_LINK': {self._package}}


def test_a_build_with_different_sources_fails():
    """As with one sysroot that is older than the other; a rebuild of the same source is no difference."""
    assert differences([Half('amd64', '3.0.22-1', ''), Half('arm64', '3.0.22-1', '+b1')]) == []
    assert differences([Half('amd64', '3.0.22-1', ''), Half('arm64', '3.0.19-1', '')]) == [
        'openssl: 3.0.19-1 (arm64), 3.0.22-1 (amd64)']


def test_a_newer_package_of_the_mirror_is_said(tmp_path):
    """Of a sysroot that was made before: one that is not the newest is named, and stays.  The network is not that of the tests."""
    old, status = tmp_path / 'sysroot', tmp_path / 'sysroot/var/lib/dpkg/status'
    status.parent.mkdir(parents=True)
    made = BUILD / f'sysroot-{NATIVE}'
    wanted = (made / 'asked-for').read_text()
    (old / 'asked-for').write_text(wanted)
    status.write_text(re.sub(r'(?ms)^(Package: libssl-dev$.*?^Version: )\S+', r'\g<1>3.0.1-1', (made / 'var/lib/dpkg/status').read_text()))
    clean = {k: v for k, v in os.environ.items() if k != 'NO_INSTALL'}

    def ask(**env):
        return subprocess.run(['nsenter', f'--net=/proc/{os.getppid()}/ns/net', TOP / 'helm/image/sysroot', NATIVE, old, *wanted.split()], text=True, capture_output=True, check=True,
                              timeout=600, env={**clean, **env}).stderr
    assert re.search(rf'^sysroot: newer for {NATIVE}: libssl-dev 3\S+ \(here: 3.0.1-1\)', ask(), re.M)
    assert 'libssl-dev' not in ask(NO_INSTALL='1') and '3.0.1-1' in status.read_text()


def vex_says(file, cve, product, subcomponent):
    """What the parser of scanners finds: go-vex is in grype and in trivy (tests/packages/vex)."""
    return sh(BUILD / 'vex-parser', file, cve, product, subcomponent).split()


def test_a_scanners_parser_reads_the_vex(sboms, archive):
    file = BUILD / 'image' / f'agentd-{VERSION}.openvex.json'
    known = json.loads((TOP / 'helm/image/vex.json').read_text())
    assert {s['vulnerability']['name'] for s in json.loads(file.read_text())['statements']} == {c for of in known.values() for c in of['cves']}
    for arch in ARCHITECTURES:
        packages = {}
        for p in (p for p in json.loads(sboms[arch].read_text())['packages'] if 'sourceInfo' in p):
            packages.setdefault(p['sourceInfo'].split()[-2], p['externalRefs'][0]['referenceLocator'])
        purl = packages['grpc']
        # As grype and trivy name an image.
        image = f'pkg:oci/agentd@{urllib.parse.quote(archive.digest(arch), safe="")}?repository_url=registry.example/agentd'
        for source, of in known.items():
            for cve, why in of['cves'].items():
                said = vex_says(file, cve, image, packages[source])
                assert said == ([why['status']] if 'status' in why else ['not_affected', why['justification']]), cve
        assert vex_says(file, 'CVE-2023-99999', image, purl) == []
        assert vex_says(file, 'CVE-2023-4785', image, 'pkg:deb/debian/libssl3@3.0.1') == []
        assert vex_says(file, 'CVE-2023-4785', 'pkg:oci/agentd@sha256%3A' + '0' * 64, purl) == []


def test_grpc_sends_no_memory_that_is_still_in_use():
    """CVE-2024-11407 needs an option of a channel or a server."""
    assert not [f for f in (TOP / 'agentd').rglob('*.[ch]') if re.search('ZEROCOPY|tcp_tx_zerocopy', f.read_text())]


def callers(arch, program, name):
    """Functions of a program that call one whose name matches, which no other one of them is."""
    code = sh(f'{TRIPLET[arch]}-objdump', '-d', '--no-show-raw-insn', BUILD / f'release-{arch}' / program, timeout=300)
    return {function for function, body in re.findall(r'^[0-9a-f]+ <(\S+)>:\n((?:.+\n)*)', code, re.M)
            if not re.fullmatch(name, function) and re.search(rf'<({name})(@plt)?>$', body, re.M)}


def test_what_a_reason_says_is_not_inside_is_not():
    """Archives that the linker took something of, and functions that nobody calls."""
    for arch in ARCHITECTURES:
        taken = {Path(m).name for f in (BUILD / f'release-{arch}').glob('*.inputs') for m in re.findall(r'^\((.+)\).+$', f.read_text(), re.M)}
        assert {'libz.a', 'libcares.a', 'libbpf.a', 'libelf.a'} <= taken and not {'libminizip.a', 'libdw.a'} & taken
        cares = sh(f'{TRIPLET[arch]}-nm', '--defined-only', BUILD / f'sysroot-{arch}/usr/lib/{TRIPLET[arch]}/libcares.a').split()
        assert 'ares_expand_name' in cares and not {'read_answers', 'ares_dns_name_parse', 'ares_dns_parse'} & set(cares)
        assert callers(arch, 'agentd', 'gzclose')  # so it is seen who calls what
        for program in ('agentd', 'agentd-worker'):
            assert callers(arch, program, 'crc32_combine(64)?') == set() == callers(arch, program, 'gz(fwrite|write|putc|puts|v?printf)')
