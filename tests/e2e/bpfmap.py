"""Pinned eBPF maps, for root: the bpf(2) calls that a test needs.  The structs are those of ebpf/redirect.h."""
import ctypes
import os
import platform
import struct
import uuid

_NUMBER = {'x86_64': 321, 'aarch64': 280}[platform.machine()]
_LOOKUP, _UPDATE, _DELETE, _NEXT, _GET = 1, 2, 3, 4, 7
_libc = ctypes.CDLL(None, use_errno=True)
_LISTENS_DNS = 7


def _bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b'\0'), 128)
    result = _libc.syscall(_NUMBER, command, buffer, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), 'bpf')
    return result


def _address(buffer):
    return ctypes.addressof(buffer) if buffer is not None else 0


class Map:
    def __init__(self, path, key_size, value_size=4096):
        name = ctypes.create_string_buffer(os.fsencode(path))
        self._fd = _bpf(_GET, struct.pack('=QII', _address(name), 0, 0))
        self._key_size, self._value_size = key_size, value_size  # at least that of the map

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._fd)

    def _do(self, command, key, value):
        return _bpf(command, struct.pack('=IIQQQ', self._fd, 0, _address(key), _address(value), 0))

    def items(self):
        """Keys and values; what comes and goes meanwhile may be missed."""
        key, following = None, ctypes.create_string_buffer(self._key_size)
        value = ctypes.create_string_buffer(self._value_size)
        while True:
            try:
                self._do(_NEXT, key, following)
                self._do(_LOOKUP, following, value)
            except FileNotFoundError:
                return
            yield following.raw, value.raw
            key = ctypes.create_string_buffer(following.raw, self._key_size)

    def __setitem__(self, key, value):
        self._do(_UPDATE, ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value, len(value)))

    def __delitem__(self, key):
        self._do(_DELETE, ctypes.create_string_buffer(key, len(key)), None)


def pins(bpffs):
    return f'{bpffs}/agentd/v3'


def pod_index(bpffs, pod_uid):
    """The small number that the programs know the pod by."""
    with Map(f'{pins(bpffs)}/map_pods_by_index', 4) as pods:
        wanted = uuid.UUID(pod_uid).bytes
        return next(struct.unpack('=I', key)[0] for key, value in pods.items() if wanted in value)


def mark_dns(bpffs, index, sockets):
    """As the broker does for a DNS proxy's sockets: queries are sent there from now on."""
    with Map(f'{pins(bpffs)}/map_sockets', 4) as marks:
        for s in sockets:
            marks[struct.pack('=i', s.fileno())] = struct.pack('=IHH16x', index, _LISTENS_DNS, 0)


def unmark(bpffs, sockets):
    with Map(f'{pins(bpffs)}/map_sockets', 4) as marks:
        for s in sockets:
            del marks[struct.pack('=i', s.fileno())]
