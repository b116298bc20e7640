"""old_kernel.py WHAT PROGRAM ARGUMENT...: the program, without what a kernel before 6.13 or 6.5 does not have.

A seccomp filter answers as those do: PIDFD_GET_INFO is ENOTTY; with WHAT = 6.1 SO_PEERPIDFD is ENOPROTOOPT, too.
"""
import ctypes
import errno
import os
import struct
import sys

_GETSOCKOPT, _IOCTL = 55, 16  # x86_64
_SO_PEERPIDFD, _PIDFD_GET_INFO = 77, 0xC040FF0B
_NR, _ARGS = 0, 16  # in struct seccomp_data
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _FILTER = 22, 2


def _refuse(call, argument, value, error):
    """Of one call with one value in one argument (its lower half)."""
    return [(_LOAD, 0, 0, _NR), (_JUMP_EQUAL, 0, 3, call), (_LOAD, 0, 0, _ARGS + 8 * argument),
            (_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ERRNO | error)]


def main(what, *argv):
    code = _refuse(_IOCTL, 1, _PIDFD_GET_INFO, errno.ENOTTY)
    if what == '6.1':
        code += _refuse(_GETSOCKOPT, 2, _SO_PEERPIDFD, errno.ENOPROTOOPT)
    code.append((_RETURN, 0, 0, _ALLOW))
    filters = ctypes.create_string_buffer(b''.join(struct.pack('=HBBI', *c) for c in code))
    program = ctypes.create_string_buffer(struct.pack('@HP', len(code), ctypes.addressof(filters)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), 'seccomp')
    os.execv(argv[0], argv)


main(*sys.argv[1:])
