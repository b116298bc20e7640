#!/usr/bin/env python3
"""build.py --version V --text V+COMMIT --epoch SECONDS --out DIRECTORY ARCH=BINARIES:ROOT...

The image holds agentd's four programs, stripped, their C library, root certificates and users.  It has no
shell and no package manager.  ROOT is the system they were linked against: / or a sysroot.  Since 2.34 the C
library itself looks up names (files, dns).  The linker writes BINARIES/*.inputs, which say what is in the
programs: for the SBOM beside the archive.
"""
import argparse
import datetime
import re
import subprocess
from pathlib import Path

import elf
import sbom
import vex
from debian import System
from oci import Entry, Layout

PLACES = {'agentd': 'usr/local/sbin', 'agentd-worker': 'usr/local/sbin', 'agentctl': 'usr/local/bin', 'agentd-injector': 'usr/local/sbin'}
TRIPLETS = {'amd64': 'x86_64-linux-gnu', 'arm64': 'aarch64-linux-gnu'}
# A line of *.inputs: "(archive)member", or an object.
TAKEN = re.compile(r'^(?:\((.+)\).+|(.+\.o))$', re.M)
# Libraries that are headers only: the linker does not know them.
HEADERS = ('/usr/include/uthash.h',)
TOP = Path(__file__).resolve().parents[2]
LICENCES = ('LICENSE', 'ebpf/LICENSE', 'proto/NOTICE')
ROOTS = '/usr/share/ca-certificates/mozilla'
TEXTS = {
    'etc/passwd': 'root:x:0:0:root:/:/nonexistent\nagentd:x:1338:1338:agentd\'s worker:/:/nonexistent\n',
    'etc/group': 'root:x:0:\nagentd:x:1338:\n',
    'etc/nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\n',
}
# A runtime mounts something on them, or agentd writes into them.
DIRECTORIES = {'dev': 0o755, 'proc': 0o555, 'sys': 0o555, 'run': 0o755, 'tmp': 0o1777, 'etc/agentd': 0o755}
LABELS = {
    'org.opencontainers.image.title': 'agentd',
    'org.opencontainers.image.description': "Certificates and configuration for the Envoys of a node, instead of "
                                            "Istio's agent in every pod",
    'org.opencontainers.image.licenses': 'Apache-2.0',
}


class Image:
    """What the image of one architecture holds, and where each file comes from."""

    def __init__(self, arch, binaries, root):
        self.arch, self._binaries, self._system = arch, Path(binaries), System(root)
        self._programs = {name: self._binaries / name for name in PLACES}
        triplet = TRIPLETS[arch]
        self._folders = [f'{top}/{triplet}' for top in ('lib', 'usr/lib')]
        self._interpreter, self._libraries = elf.libraries(
            self._programs.values(), lambda name: self._system.find(name, self._folders))
        self._strip = f'{triplet}-strip'
        self._roots = sorted(self._system.path(ROOTS).iterdir())

    def entries(self):
        for name, file in self._programs.items():
            yield Entry(f'{PLACES[name]}/{name}', 0o755, self._stripped(file))
        for name, file in self._libraries.items():
            # The kernel starts the one that is at the interpreter's path.
            place = self._interpreter.lstrip('/') if self._interpreter.endswith('/' + name) else f'{self._folders[0]}/{name}'
            yield Entry(place, 0o755, file.read_bytes())
        yield Entry('etc/ssl/certs/ca-certificates.crt', 0o644, b''.join(f.read_bytes() for f in self._roots))
        for name, text in TEXTS.items():
            yield Entry(name, 0o644, text.encode())
        for name, mode in DIRECTORIES.items():
            yield Entry(name, mode)
        for name in LICENCES:
            yield Entry(f'usr/share/doc/agentd/{name.replace("/", "-")}', 0o644, (TOP / name).read_bytes())
        for p in set().union(*self.packages().values()):
            yield Entry(f'usr/share/doc/{p.name}/copyright', 0o644, p.copyright.encode())

    def _stripped(self, file):
        out = file.with_name(file.name + '.stripped')
        subprocess.run([self._strip, '-o', out, file], check=True)
        return out.read_bytes()

    def packages(self):
        """By how agentd is related to them (SPDX's words)."""
        taken = {Path("".join(files)).resolve() for name in PLACES for files in
                 TAKEN.findall((self._binaries / f'{name}.inputs').read_text())}
        static = {f for f in taken if not f.is_relative_to(self._binaries.resolve())}
        static |= {self._system.path(f) for f in HEADERS}
        return {'STATIC_LINK': set(self._system.owners(static).values()),
                'DYNAMIC_LINK': set(self._system.owners(self._libraries.values()).values()),
                'CONTAINS': set(self._system.owners(self._roots[:1]).values())}


def differences(images):
    """What one architecture has of another source version than the others; a rebuild by Debian (+b1) is none."""
    versions = {}
    for image in images:
        for p in set().union(*image.packages().values()):
            versions.setdefault(p.source, {}).setdefault(p.source_version, []).append(image.arch)
    return [f'{source}: ' + ', '.join(f'{v} ({" ".join(arches)})' for v, arches in sorted(found.items()))
            for source, found in sorted(versions.items()) if len(found) > 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, kind in {'--version': str, '--text': str, '--epoch': int, '--out': Path}.items():
        parser.add_argument(flag, type=kind, required=True)
    parser.add_argument('trees', nargs='+', metavar='ARCH=BINARIES:ROOT')
    args = parser.parse_args()
    created = datetime.datetime.fromtimestamp(args.epoch, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
    labels = {**LABELS, 'org.opencontainers.image.version': args.text, 'org.opencontainers.image.created': created}
    if '+' in args.text:
        labels['org.opencontainers.image.revision'] = args.text.partition('+')[2]
    settings = {'Entrypoint': ['/usr/local/sbin/agentd'], 'Env': ['PATH=/usr/local/sbin:/usr/local/bin'],
                'User': '0:0', 'WorkingDir': '/', 'Labels': labels}
    args.out.mkdir(parents=True, exist_ok=True)
    layout, made = Layout(args.epoch), []
    images = [Image(arch, *rest.split(':')) for arch, _, rest in (tree.partition('=') for tree in args.trees)]
    if differences(images):
        raise SystemExit('image: the architectures differ; rm -r build/sysroot-* fetches both anew:\n  ' + '\n  '.join(differences(images)))
    for image in images:
        made.append(layout.image(image.arch, list(image.entries()), settings, created))
        (args.out / f'agentd-{args.version}-{image.arch}.spdx.json').write_bytes(sbom.document(
            sbom.Subject(args.version, args.text, image.arch, made[-1]['digest']), args.epoch, image.packages()))
    (args.out / f'agentd-{args.version}.oci.tar').write_bytes(layout.archive(made, args.version, labels))
    (args.out / f'agentd-{args.version}.openvex.json').write_bytes(vex.document(
        args.epoch, [(m['digest'], i.packages()) for m, i in zip(made, images)]))


if __name__ == '__main__':
    main()
