"""python3 -m tests.e2e.killer PID N: SIGKILL for the process at the N-th entry into, or return from, a system call of any of its threads.

It says "ready" once all of them are watched.  A process that makes fewer is let go when this one ends.
"""
import ctypes
import os
import signal
import sys
from pathlib import Path

_SEIZE, _INTERRUPT, _SYSCALL, _WALL = 0x4206, 0x4207, 24, 0x40000000
_SYSGOOD, _CLONE = 1, 8
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(what, tid, data=0):
    if _libc.ptrace(what, tid, None, data):
        raise OSError(ctypes.get_errno(), f'ptrace {what}')


def main(pid, at):
    for task in Path(f'/proc/{pid}/task').iterdir():
        _ptrace(_SEIZE, int(task.name), _SYSGOOD | _CLONE)
        _ptrace(_INTERRUPT, int(task.name))
    print('ready', flush=True)
    seen = 0
    while True:
        tid, status = os.waitpid(-1, _WALL)
        if not os.WIFSTOPPED(status):
            continue  # a thread has ended
        stopped, event = os.WSTOPSIG(status), status >> 16
        if stopped == signal.SIGTRAP | 0x80:
            seen += 1
            if seen == at:
                os.kill(pid, signal.SIGKILL)
                return
        # Else a signal of its own, which it is to have; an event of ours is none.
        _ptrace(_SYSCALL, tid, 0 if event or stopped == signal.SIGTRAP | 0x80 else stopped)


if __name__ == '__main__':
    main(int(sys.argv[1]), int(sys.argv[2]))
