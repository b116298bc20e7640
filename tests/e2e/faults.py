"""A disk that is full, broken or read-only, as the broker sees it: its calls fail as a file says (faults.c)."""
import contextlib
import errno
import os
import subprocess

from .pod import HERE

ERRNOS = 'ENOSPC', 'EIO', 'EROFS', 'EDQUOT'


class Faults:
    """`agentd` is not started yet."""

    def __init__(self, node):
        self._file = node.dir / 'faults'
        self._file.touch()
        library = node.dir / 'faults.so'
        subprocess.run(['cc', '-shared', '-fPIC', '-O1', '-o', library, HERE / 'faults.c', '-ldl'], check=True)
        first = []
        if node.agentd.mode == 'asan':  # it must come before all others
            first = [subprocess.run(['cc', '-print-file-name=libasan.so'], text=True, capture_output=True,
                                    check=True).stdout.strip()]
        node.agentd.around = [*node.agentd.around, 'env', f'LD_PRELOAD={" ".join([*first, str(library)])}',
                              f'FAULTS={self._file}']

    def _write(self, text):
        new = self._file.with_suffix('.new')
        new.write_text(text)
        new.rename(self._file)

    def seen(self):
        """(call, path) of each that failed so far."""
        with contextlib.suppress(FileNotFoundError):
            return [line.split(' ', 2)[::2] for line in
                    self._file.with_name('faults.seen').read_text().splitlines()]
        return []

    @contextlib.contextmanager
    def on(self, call, code, part):
        """Every such call fails; afterwards at least one did."""
        before = len(self.seen())
        self._write(f'{call} {getattr(errno, code)} {part}\n')
        yield os.strerror(getattr(errno, code))
        assert len(self.seen()) > before, f'nothing calls {call} below {part}'
        self._write('')
