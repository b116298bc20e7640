"""Which Debian package has a file, on this machine or in a sysroot (helm/image/sysroot)."""
import collections
import os
import subprocess
from pathlib import Path

# `sha256` is of the .deb, "" where it is not known; `copyright` is the text of Debian's file.
Package = collections.namedtuple('Package', 'name version arch source source_version sha256 copyright')
FIELDS = '${binary:Package}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\t${SHA256}\n'


class System:
    """Files and packages below `root`."""

    def __init__(self, root):
        self.root = Path(root).resolve()
        self._query = ['dpkg-query', f'--admindir={self.root}/var/lib/dpkg']
        rows = (line.split('\t') for line in self._run('-W', '-f', FIELDS).splitlines())
        self._packages = {row[0]: Package(*row[1:], self._copyright(row[1])) for row in rows}

    def _run(self, *args):
        return subprocess.run([*self._query, *args], check=True, capture_output=True, text=True).stdout

    def _copyright(self, package):
        try:
            return (self.root / 'usr/share/doc' / package / 'copyright').read_text(errors='replace')
        except OSError:
            return ''

    def path(self, name):
        return self.root / str(name).lstrip('/')

    def find(self, name, folders):
        """The first of these that is there."""
        return next(f for f in (self.path(folder) / name for folder in folders) if f.exists())

    def owners(self, files):
        """{file: package}; LookupError names one that no package has."""
        return {file: self._owner(file) for file in files}

    def _owner(self, file):
        name = '/' + os.path.relpath(os.path.normpath(file), self.root)
        # /usr is merged here: a package may name its file with or without it.
        for known_as in (name, name.removeprefix('/usr')):
            try:
                return self._packages[self._run('-S', known_as).partition(': ')[0].split(',')[0]]
            except (subprocess.CalledProcessError, KeyError):
                continue
        raise LookupError(f'{file} is of no package')
