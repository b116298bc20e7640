"""The images of a node, made of files of this machine, with the module that makes agentd's own.

python3 -m tests.real.kube.images   makes them, for whoever needs them later.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.e2e.pod import envoy_binary
from tests.e2e.run import TOP, sh

from .node import PAUSE

sys.path.insert(0, str(TOP / 'helm' / 'image'))
from oci import Entry, Layout  # noqa: E402

HERE = Path(__file__).parent
ISTIO = TOP / 'build' / 'real' / 'istio'
KEPT = TOP / 'build' / 'real' / 'images'
VERSION = (TOP / 'VERSION').read_text().strip()
BEFORE = TOP / 'build' / 'real' / 'before'
ISTIO_VERSION = '1.29.1'
APP, PROXY, PILOT, AGENTD = ('registry.example/app:1', f'docker.io/istio/proxyv2:{ISTIO_VERSION}',
                             f'docker.io/istio/pilot:{ISTIO_VERSION}', f'registry.example/agentd:{VERSION}')
AGENTD_BEFORE = 'registry.example/agentd:before'
EPOCH = 1700000000
CREATED = '2023-11-14T22:13:20Z'
APPLETS = 'sh', 'wget', 'httpd', 'sleep', 'cat', 'nslookup', 'nc', 'id', 'ls', 'echo', 'env', 'rm', 'touch', 'timeout'


def _libraries(program):
    """The shared objects of a program, where its loader finds them."""
    out = subprocess.run(['ldd', program], capture_output=True, text=True, check=False).stdout
    return sorted(set(re.findall(r'(/\S+) \(0x', out)))


def _files(places):
    """An entry for each file, and for what it is linked with."""
    wanted = {}
    for place, file in places.items():
        wanted[place.lstrip('/')] = file
        wanted.update((library.lstrip('/'), library) for library in _libraries(file))
    return [Entry(place, 0o755, Path(file).read_bytes()) for place, file in wanted.items()]


def _etc():
    return [Entry('etc/passwd', 0o644, b'root:x:0:0::/:/bin/sh\nistio-proxy:x:1337:1337::/:/bin/sh\n'),
            Entry('etc/group', 0o644, b'root:x:0:\nistio-proxy:x:1337:\n'),
            Entry('etc/nsswitch.conf', 0o644, b'hosts: files dns\n'),
            *(Entry(name, 0o1777) for name in ('tmp', 'etc/istio', 'var/lib/istio/data', 'var/run/secrets'))]


def _archive(reference, entries, **settings):
    """Kept by what is in it."""
    settings = {'Env': ['PATH=/usr/local/bin:/usr/bin:/bin'], 'WorkingDir': '/', **settings}
    name = reference.rpartition('/')[2].partition(':')[0]
    digest = hashlib.sha256(repr((reference, settings)).encode())
    for entry in sorted(entries):
        digest.update(repr(entry[:2]).encode() + (entry.data or b''))
    path = KEPT / f'{name}-{digest.hexdigest()[:16]}.tar'
    if not path.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        for old in KEPT.glob(f'{name}-*'):
            old.unlink(missing_ok=True)
        layout = Layout(EPOCH, effort=1)
        image = layout.image('amd64', entries, settings, CREATED)
        new = path.with_name(f'.{path.name}.{os.getpid()}')  # another kind of node may be about it, too
        new.write_bytes(layout.archive([image], reference.rpartition(':')[2], {}))
        new.rename(path)
    return reference, path


def _iptables():
    """What istio-init calls: one program under six names, and its modules, which it looks for beside its libraries."""
    program = os.path.realpath(shutil.which('iptables-nft'))
    modules = [str(m) for of in ('xt', 'ipt', 'ip6t') for m in Path('/usr/lib').glob(f'*-linux-gnu/xtables/lib{of}_*.so')]
    names = (f'{family}-nft{what}' for family in ('iptables', 'ip6tables') for what in ('', '-save', '-restore'))
    return {**{f'usr/bin/{name}': program for name in names}, **{module: module for module in modules}}


def _pause():
    with tempfile.TemporaryDirectory() as folder:
        sh('cc', '-O2', '-static', '-o', f'{folder}/pause', HERE / 'pause.c')
        return _files({'pause': f'{folder}/pause'})


def version_before():
    return yaml.safe_load((BEFORE / 'chart' / 'Chart.yaml').read_text())['appVersion']


def make():
    """(reference, archive) of each."""
    yield _archive(PAUSE, _pause(), Entrypoint=['/pause'])
    yield _archive(APP, [*_etc(), *_files({f'bin/{a}': shutil.which('busybox') for a in APPLETS})],
                   Cmd=['/bin/sleep', 'infinity'])
    yield _archive(PROXY, [*_etc(), Entry('etc/istio/proxy', 0o755), *_files(
        {'usr/local/bin/envoy': envoy_binary(), 'usr/local/bin/pilot-agent': ISTIO / 'pilot-agent',
         'var/lib/istio/envoy/envoy_bootstrap_tmpl.json': ISTIO / 'envoy_bootstrap.json', **_iptables()})],
        Entrypoint=['/usr/local/bin/pilot-agent'], User='1337:1337')
    yield _archive(PILOT, [*_etc(), *_files({'usr/local/bin/pilot-discovery': ISTIO / 'pilot-discovery'})],
                   Entrypoint=['/usr/local/bin/pilot-discovery'], User='1337:1337')
    yield AGENTD_BEFORE, BEFORE / 'image.oci.tar'
    yield AGENTD, TOP / 'build' / 'image' / f'agentd-{VERSION}.oci.tar'


if __name__ == '__main__':
    for _ in make():
        pass
