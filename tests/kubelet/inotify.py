"""A watch of one directory, for asyncio."""
import asyncio
import ctypes
import os
import struct

CREATED, REMOVED = 0x100 | 0x80, 0x200 | 0x40  # created or moved in; removed or moved away
_libc = ctypes.CDLL(None, use_errno=True)


def watch(directory, event):
    """From now on event(name, there) for each entry that comes (also over another one's name) or goes."""
    fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0 or _libc.inotify_add_watch(fd, os.fsencode(directory), CREATED | REMOVED) < 0:
        raise OSError(ctypes.get_errno(), 'inotify')

    def ready():
        data, at = os.read(fd, 1 << 16), 0
        while at < len(data):
            _, mask, _, size = struct.unpack_from('iIII', data, at)
            name = data[at + 16:at + 16 + size].rstrip(b'\0')
            at += 16 + size
            event(os.fsdecode(name), bool(mask & CREATED))
    asyncio.get_running_loop().add_reader(fd, ready)
