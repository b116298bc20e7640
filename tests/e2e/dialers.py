"""Programs that dial much: what each connection met, in sum.  They run in a pod, or beside it."""
import collections
import contextlib
import json
import os
import resource
import selectors
import socket
import struct
import time

APP = 1000


def _as_user(function, *args):
    """function(*args) by a process of the app's user."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))
        os.setgroups([])
        os.setresgid(APP, APP, APP)
        os.setresuid(APP, APP, APP)
        try:
            result = function(*args)
        except OSError as e:
            result = {'failed': str(e)}
        os.write(writer, json.dumps(result).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text or '"died"')


def _name(to, port):
    return f'[{to}]:{port}' if ':' in to else f'{to}:{port}'


def _socket(to):
    """AF_INET for IPv4, or every other time an IPv6 socket that dials it as ::ffff:a.b.c.d."""
    return socket.socket(socket.AF_INET6 if ':' in to else socket.AF_INET)


def sent_to(to, port, device):
    """Where a socket of one device is sent, whoever answers there."""
    with socket.socket(socket.AF_INET6) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        s.setblocking(False)
        s.connect_ex((to, port))
        own = f':{s.getsockname()[1]:04X}'
        with open('/proc/thread-self/net/tcp6', encoding='ascii') as f:
            remote, = (row[2] for row in map(str.split, f) if row[1].endswith(own))
    return socket.inet_ntop(socket.AF_INET6, struct.pack('=4I', *(int(remote[i:i + 8], 16) for i in range(0, 32, 8))))


class _Many:
    def __init__(self, hold):
        self._selector, self._hold = selectors.DefaultSelector(), hold
        self.open, self.held = 0, []
        self.right, self.wrong, self.errors = 0, [], collections.Counter()

    def dial(self, to, port, mapped):
        s = socket.socket(socket.AF_INET6) if mapped else _socket(to)
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            try:
                s.connect((f'::ffff:{to}' if mapped else to, port))
            except BlockingIOError:
                raise
            except OSError as e:
                self.errors[type(e).__name__ + str(e.errno)] += 1
                s.close()
                return
        self._selector.register(s, selectors.EVENT_READ, (_name(to, port), bytearray()))
        self.open += 1

    def turn(self, patience_s=60):
        ready = self._selector.select(patience_s)
        if not ready:
            raise TimeoutError(f'{self.open} connections hear nothing')
        for key, _ in ready:
            self._take(key.fileobj, *key.data)

    def _take(self, s, wanted, data):
        try:
            chunk = s.recv(4096)
        except OSError as e:
            self.errors[type(e).__name__] += 1
            return self._end(s)
        data += chunk
        if chunk:
            return None
        seen = json.loads(data)
        if seen['original'] == wanted and seen['port'] == 15001:
            self.right += 1
        else:
            self.wrong.append([wanted, seen])
        return self._end(s)

    def _end(self, s):
        self._selector.unregister(s)
        self.open -= 1
        if self._hold:
            self.held.append(s)
        else:
            s.close()


def _dial_many(destinations, count, parallel, hold):
    m = _Many(hold)
    for i in range(count):
        to, port = destinations[i % len(destinations)]
        m.dial(to, port, mapped=':' not in to and i // len(destinations) % 2)
        while m.open >= parallel:
            m.turn()
    while m.open:
        m.turn()
    return {'right': m.right, 'wrong': m.wrong[:5], 'errors': dict(m.errors), 'held': len(m.held)}


def many(destinations, count, parallel, hold=False):
    """Each must be told that it dialled what it dialled.  hold: all of them stay open to the end."""
    return _as_user(_dial_many, destinations, count, parallel, hold)


def refused(to, port, sources):
    """Errors of dials from these ports."""
    errors = collections.Counter()
    for source in sources:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(('0.0.0.0', source))
            s.settimeout(60)
            try:
                s.connect((to, port))
                errors['connected'] += 1
            except OSError as e:
                errors[type(e).__name__] += 1
    return dict(errors)


def originals(to, port, sources):
    """What the listener is told of direct dials from these ports."""
    told = collections.Counter()
    for source in sources:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(('0.0.0.0', source))
            s.settimeout(60)
            s.connect((to, port))
            data = b''
            while chunk := s.recv(4096):
                data += chunk
            told[str(json.loads(data)['original'])] += 1
    return dict(told)


def probe(to, port, stop, every_s=0.0001):
    """Dials until the file `stop` is there; how many, and which port's listener answered how many.

    Meanwhile the file `stop`.dialled grows by a byte for every 50 dials, `stop`.LISTENER for the first of every 50 answers."""
    progress = open(f'{stop}.dialled', 'ab', buffering=0)
    selector, answered, dialled = selectors.DefaultSelector(), collections.Counter(), 0
    waiting = collections.deque()

    def take(s):
        with contextlib.suppress(OSError, ValueError):
            listener = json.loads(s.recv(4096))['port']
            answered[listener] += 1
            if answered[listener] % 50 == 1:
                with open(f'{stop}.{listener}', 'ab') as f:
                    f.write(b'.')
        selector.unregister(s)
        s.close()

    while not os.path.exists(stop):
        s = socket.socket()
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            s.connect((to, port))
        selector.register(s, selectors.EVENT_READ)
        waiting.append((time.monotonic(), s))
        dialled += 1
        if dialled % 50 == 0:
            progress.write(b'.')
        for key, _ in selector.select(every_s):
            take(key.fileobj)
        while waiting and time.monotonic() - waiting[0][0] > 0.1:  # its SYN was dropped: there is the next one
            _, old = waiting.popleft()
            if old.fileno() >= 0:
                selector.unregister(old)
                old.close()
    progress.close()
    return {'dialled': dialled, 'answered': dict(answered)}
