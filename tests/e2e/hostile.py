"""A broker whose worker is the test (hostile_worker.c), and its protocol as border/protocol.h has it."""
import array
import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
import socket
import subprocess
import uuid
from pathlib import Path

from . import rest
from .node import BUILD, MODE
from .run import PATIENCE_S, TOP, Process, wait_for

PROTOCOL = ''.join((TOP / 'agentd/border' / name).read_text() for name in ('ops.h', 'protocol_request.h', 'protocol.h'))
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
MIB = 1 << 20


def _constants(text):
    """NAME -> value, of all enums."""
    found = {}
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    operations = ''.join(f'LINK_{name}, ' for name in re.findall(r'\bX\((\w+),', text))
    text = text.replace('LINK_OPS(LINK_OP_NUMBER)', operations)
    for body in re.findall(r'enum[^{;]*\{(.*?)\}', text, re.S):
        value = -1
        for item in filter(None, (i.strip() for i in body.split(','))):
            name, _, given = (p.strip() for p in item.partition('='))
            value = eval(given, {}, found) if given else value + 1
            found[name] = value
    return found


LINK = _constants(PROTOCOL)
NFDS = {name: int(n) for name, n in re.findall(r'\bX\((\w+), (\d)', PROTOCOL)}  # that an operation takes
REDIRECT = _constants((TOP / 'ebpf/redirect.h').read_text() + (TOP / 'agentd/border/rules.h').read_text())


class Request(ctypes.Structure):
    _fields_ = [('id', ctypes.c_uint32), ('op', ctypes.c_uint16), ('kind', ctypes.c_uint16),
                ('arg', ctypes.c_uint32), ('uid', ctypes.c_ubyte * 16),
                ('state_id', ctypes.c_ubyte * LINK['LINK_STATE_ID_SIZE']),
                ('volume', ctypes.c_char * LINK['LINK_VOLUME_SIZE'])]


class Row(ctypes.Structure):
    _fields_ = [('kind', ctypes.c_uint32), ('number', ctypes.c_uint32)]


class Cidr(ctypes.Structure):
    _fields_ = [('address', ctypes.c_ubyte * 16), ('bits', ctypes.c_uint32), ('flags', ctypes.c_uint32)]


class Rules(ctypes.Structure):
    """struct redirect_rules: at first those of a pod that is captured in whole."""
    _fields_ = [*((name, ctypes.c_uint32) for name in ('version', 'flags', 'proxy_uid', 'proxy_gid')),
                *((name, ctypes.c_uint16) for name in ('outbound_port', 'inbound_port', 'tunnel_port', 'dns_port')),
                *((name, ctypes.c_uint32) for name in ('strict', 'nrows', 'ncidrs', 'ninterfaces')),
                ('interfaces', (ctypes.c_char * REDIRECT['REDIRECT_INTERFACE_SIZE']) * REDIRECT['REDIRECT_INTERFACES_MAX']),
                ('rows', Row * REDIRECT['REDIRECT_ROWS_MAX']), ('cidrs', Cidr * REDIRECT['REDIRECT_CIDRS_MAX'])]

    def __init__(self, rows=(), cidrs=(), interfaces=(), **changes):
        """`rows` (kind, number), `cidrs` (bits, flags) of the zero address, `interfaces` names."""
        flags = REDIRECT['REDIRECT_OUTBOUND_ALL'] | REDIRECT['REDIRECT_INBOUND_ALL'] | REDIRECT['REDIRECT_DNS']
        super().__init__(**{**dict(
            version=REDIRECT['REDIRECT_RULES_VERSION'], flags=flags, proxy_uid=1337, proxy_gid=1337, outbound_port=15001,
            inbound_port=15006, tunnel_port=15008, dns_port=15053, strict=1), **changes})
        self.nrows, self.ncidrs, self.ninterfaces = len(rows), len(cidrs), len(interfaces)
        for i, (kind, number) in enumerate(rows):
            self.rows[i] = Row(kind, number)
        for i, (bits, flags) in enumerate(cidrs):
            self.cidrs[i] = Cidr(bits=bits, flags=flags)
        for i, name in enumerate(interfaces):
            self.interfaces[i].value = name

    def memfd(self, seals=SEALS):
        fd = os.memfd_create('rules', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.write(fd, bytes(self))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return fd


class Packet(ctypes.Structure):
    _fields_ = [('id', ctypes.c_uint32), ('what', ctypes.c_uint16), ('kind', ctypes.c_uint16),
                ('arg', ctypes.c_uint32), ('code', ctypes.c_int32), ('state', ctypes.c_uint32),
                ('naddresses', ctypes.c_uint32), ('netns_cookie', ctypes.c_uint64),
                ('cgroup_id', ctypes.c_uint64), ('uid', ctypes.c_ubyte * 16),
                ('state_id', ctypes.c_ubyte * LINK['LINK_STATE_ID_SIZE']),
                ('addresses', ctypes.c_ubyte * (17 * LINK['LINK_ADDRESSES_MAX'])),
                ('name', ctypes.c_char * LINK['LINK_NAME_SIZE']), ('why', ctypes.c_char * LINK['LINK_WHY_SIZE'])]


def memfd(size=10, seals=SEALS):
    fd = os.memfd_create('hostile', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class Gone(Exception):
    """The broker hung up."""


class Session:
    """One worker's life, as the broker sees it."""

    def __init__(self, connection):
        self._stand_in = connection
        data, fds, _, _ = socket.recv_fds(connection, 8, 1)
        assert list(array.array('I', data)) == [ctypes.sizeof(Request), ctypes.sizeof(Packet)]
        self.socket = socket.socket(fileno=fds[0])
        self.socket.setblocking(True)
        self.socket.settimeout(PATIENCE_S)
        self._id = 0
        self.pushed = []  # (packet, fd) that were no reply
        hello, _ = self.receive()
        assert (hello.what, hello.arg) == (LINK['LINK_HELLO'], LINK['LINK_VERSION'])

    def send(self, op, uid=None, kind=0, arg=0, fds=(), state_id=b'', volume=b'', request_id=None, size=None):
        """Any request; `size` makes it longer or shorter than it is.  Its id."""
        self._id += 1
        r = Request(id=self._id if request_id is None else request_id,
                    op=LINK.get(f'LINK_{op}', op), kind=kind, arg=arg)
        if uid:
            r.uid[:] = uuid.UUID(uid).bytes
        r.state_id[:len(state_id)] = state_id
        r.volume = volume
        data = bytes(r)
        size = len(data) if size is None else size
        try:
            socket.send_fds(self.socket, [data.ljust(size, b'\0')[:size]], list(fds))
        except (BrokenPipeError, ConnectionResetError) as e:
            raise Gone from e
        return self._id

    def hear(self):
        """(packet, fd or None), or None: a ping, which is answered, for a silent worker is killed."""
        packet, fd = self._receive()
        if packet.what != LINK['LINK_PING']:
            return packet, fd
        self.send('PONG', arg=packet.arg)
        return None

    def receive(self):
        """The next one that is no ping."""
        while not (heard := self.hear()):
            pass
        return heard

    def _receive(self):
        try:
            data, fds, flags, _ = socket.recv_fds(self.socket, ctypes.sizeof(Packet) + 1, 8)
        except ConnectionResetError as e:
            raise Gone from e
        if not data:
            raise Gone
        assert len(data) == ctypes.sizeof(Packet) and len(fds) <= 1 and not flags & socket.MSG_CTRUNC
        return Packet.from_buffer_copy(data), (fds[0] if fds else None)

    def receive_of(self, what):
        """The next packet of that kind that was no reply."""
        while True:
            for i, (packet, _) in enumerate(self.pushed):
                if packet.what == LINK[f'LINK_{what}']:
                    return self.pushed.pop(i)
            self.pushed.append(self.receive())

    def reply(self, request_id):
        while True:
            packet, fd = self.receive()
            if packet.what == LINK['LINK_REPLY'] and packet.id == request_id:
                return packet, fd
            self.pushed.append((packet, fd))

    def ask(self, op, *args, **kw):
        return self.reply(self.send(op, *args, **kw))

    def refused(self, op, *args, **kw):
        """The errno; a refusal carries a reason and nothing else."""
        packet, fd = self.ask(op, *args, **kw)
        assert packet.code and packet.why and fd is None, (op, args, kw, packet.code, packet.why)
        assert not packet.netns_cookie and not packet.naddresses
        return packet.code

    def works(self, op, *args, **kw):
        packet, fd = self.ask(op, *args, **kw)
        assert not packet.code, (op, args, kw, errno.errorcode.get(packet.code), packet.why)
        return fd

    def killed(self):
        """True when the broker hung up and the stand-in is gone."""
        try:
            while True:
                _, fd = self.receive()
                if fd is not None:
                    os.close(fd)
        except Gone:
            pass
        self._stand_in.settimeout(PATIENCE_S)
        try:
            return self._stand_in.recv(1) == b''
        except ConnectionResetError:
            return True

    def close(self):
        for _, fd in self.pushed:
            if fd is not None:
                os.close(fd)
        self.socket.close()
        self._stand_in.close()


class Broker:
    """agentd with the stand-in beside it, in a directory of its own."""

    def __init__(self, node, *flags, mode=MODE):
        self.node, self._flags = node, flags
        self._bin = node.dir / 'hostile'
        self._bin.mkdir()
        shutil.copy(BUILD / mode / 'agentd', self._bin)
        subprocess.run(['cc', '-D_GNU_SOURCE', '-O1', '-iquote', TOP / 'agentd', '-o', self._bin / 'agentd-worker',
                        TOP / 'tests/e2e/hostile_worker.c'], check=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._bin / 's'))
        os.chmod(self._bin / 's', 0o666)
        self._listener.listen()
        self._listener.settimeout(PATIENCE_S)
        self.config = self._bin / 'agentd.yaml'
        self.config.write_text(str(self._bin / 's'))
        self.process = None

    def start(self):
        a = self.node.agentd
        self.process = a.process = Process(
            [self._bin / 'agentd', '--run', a.run, '--manifests', a.manifests, '--config', self.config,
             '--root-file', f'0={a.root_file}', *self._flags], a.log, a.cgroup, env=a.environment())
        return self.session()

    def session(self):
        """The next worker's."""
        connection, _ = self._listener.accept()
        return Session(connection)

    @contextlib.contextmanager
    def one_session(self):
        """Start, and end by SIGKILL: whatever the session did to itself."""
        session = self.start()
        try:
            yield session
        finally:
            session.close()
            self.node.agentd.kill()

    def stat(self):
        """Ticks of CPU, resident kB."""
        fields = Path(f'/proc/{self.process.pid}/stat').read_text().rpartition(')')[2].split()
        return int(fields[11]) + int(fields[12]), int(fields[21]) * os.sysconf('SC_PAGESIZE') // 1024

    def descriptors(self):
        """How many it keeps, once it has done all that it was asked."""
        return len(wait_for('the broker to sleep', lambda: rest.fds_of_broker(self.process.pid)))

    def log(self):
        return self.node.agentd.log.read_text(errors='replace')

    def wait_log(self, text):
        wait_for(f'the log to say {text}', lambda: re.search(text, self.log()))


def snapshot(*roots):
    """Everything below: kind, mode, owner, size, time, target."""
    found = {}
    for root in roots:
        for path in [root, *sorted(Path(root).rglob('*'))]:
            st = path.lstat()
            found[str(path)] = (st.st_mode, st.st_uid, st.st_gid, st.st_size if not path.is_dir() else 0,
                                st.st_mtime_ns if not path.is_dir() else 0,
                                os.readlink(path) if path.is_symlink() else '')
    return found
