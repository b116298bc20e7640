"""What an app and its own Envoy can do to a connection between them: each a small story, told with both ends in hand.

Runs in a pod's own process, as root: a socket belongs to the user who made it (cast.user).
"""
import array
import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import random
import select
import socket
import struct
import tempfile
import termios
import threading

from . import cast
from .run import wait_for
from .scene import APP, ENVOY, FAR, FAR6

OUT, IN, APP_PORT, MANY = 15001, 15006, 8080, 60
_LINGER_NOW = struct.pack('=ii', 1, 0)
_ZEROCOPY, _MSG_ZEROCOPY, _ULP, _MEMINFO = 60, 0x4000000, 31, 55
WAYS = 'outbound', 'outbound6', 'mapped', 'inbound'
# An Envoy and another pod's, as the one's app and the other's: the dialler first, or the one who accepted; and from
# app to app, through both Envoys; and from an app to the other Envoy, past its own.
BETWEEN = 'there', 'back', 'through', 'past'


def _listener(uid, port):
    with cast.user(uid, uid):
        s = socket.create_server(('::', port), family=socket.AF_INET6, dualstack_ipv6=True)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
    return s


# --- the other pod of a connection between two: it hands over what it accepts ---
_other = {}


def _hand_over(uid, port, path):
    listener, asked = _listener(uid, port), socket.socket(socket.AF_UNIX)
    asked.bind(path)
    asked.listen(64)

    def run():
        while True:
            asker, _ = asked.accept()
            accepted, _ = listener.accept()
            socket.send_fds(asker, [b'.'], [accepted.fileno()])
            accepted.close()
            asker.sendall(b'.')  # from now on it is the asker's alone
            asker.close()
    threading.Thread(target=run, daemon=True).start()


def hand_over(folder, envoy):
    """In the other pod.  `envoy`: also in its Envoy's place."""
    _hand_over(APP, APP_PORT, f'{folder}/app')
    if envoy:
        _hand_over(ENVOY, IN, f'{folder}/envoy')


def meet(ip, folder):
    _other.update(ip=ip, folder=str(folder))


def _from_other(way, prepare, early):
    uid = APP if way in ('through', 'past') else ENVOY
    with cast.user(uid, uid):
        dialled = socket.socket()
    if prepare:
        prepare(dialled)
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(f'{_other["folder"]}/{"app" if way == "through" else "envoy"}')
        with cast.user(uid, uid):
            if early:
                dialled.sendto(early, socket.MSG_FASTOPEN, (_other['ip'], APP_PORT))
            else:
                dialled.connect((_other['ip'], APP_PORT))
        _, (fd,), _, _ = socket.recv_fds(asker, 1, 1)
        asker.recv(1)
    accepted = socket.socket(fileno=fd)
    return (accepted, dialled) if way == 'back' else (dialled, accepted)


class Pair:
    """A connection: its `app` and its `envoy`, which never wait longer than they are told to."""

    listeners = {}

    def __init__(self, way='outbound', prepare=None, early=b''):
        make = _from_other if way in BETWEEN else self._at_home
        self.app, self.envoy = make(way, prepare, early)
        self.app.settimeout(60)
        self.envoy.settimeout(60)

    @staticmethod
    def _at_home(way, prepare, early):
        inbound = way == 'inbound'
        port, user = (APP_PORT, APP) if inbound else (OUT, ENVOY)
        listener = Pair.listeners.get(port) or Pair.listeners.setdefault(port, _listener(user, port))
        to = {'outbound': (FAR, 80), 'outbound6': (FAR6, 80), 'mapped': (f'::ffff:{FAR}', 80), 'inbound': ('127.0.0.1', port)}[way]
        with cast.user(ENVOY if inbound else APP, ENVOY if inbound else APP):
            dialled = socket.socket(cast.family_of(to[0]))
        if prepare:
            prepare(dialled)
        with cast.user(*[ENVOY if inbound else APP] * 2):
            if inbound:
                dialled.bind(('127.0.0.6', 0))
            if early:
                dialled.sendto(early, socket.MSG_FASTOPEN, to)
            else:
                dialled.connect(to)
        accepted, _ = listener.accept()
        return (accepted, dialled) if inbound else (dialled, accepted)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.app.close()
        self.envoy.close()


def _said(function, *args):
    """What it answers, or the error's name."""
    try:
        return function(*args)
    except TimeoutError:
        return 'TimeoutError'
    except OSError as e:
        return errno.errorcode[e.errno]


def _all(s):
    """Everything up to the end, and how that came."""
    data = b''
    while True:
        got = _said(s.recv, 1 << 16)
        if isinstance(got, str) or not got:
            return data, got
        data += got


def _bytes(seed, n):
    return random.Random(seed).randbytes(n)


# --- stories ---
def _early(way):
    if way == 'inbound':
        return None
    with Pair(way, early=b'1') as p:
        p.app.sendall(b'2')
        p.app.sendall(b'3')
        p.app.shutdown(socket.SHUT_WR)
        return _all(p.envoy)


def _unread_before_more(way):
    """What came one way is read before what comes the other."""
    with Pair(way) as p:
        sent = b''
        for n in range(100):
            piece = _bytes(n, (n * 997) % 30011)
            sent += piece
            t = threading.Thread(target=p.app.sendall, args=[piece])
            t.start()
            got = b''
            while len(got) < len(piece):
                got += p.envoy.recv(random.Random(n).randint(1, 20000))
            t.join()
            if got != piece:
                return n
        return 'same'


def _streams(way, size=1 << 20):
    """Both ways at once, in pieces of every size; the readers now quick, now slow."""
    with Pair(way) as p:
        def write(s, seed):
            data, pieces = memoryview(_bytes(seed, size)), random.Random(seed)
            while data:
                n = pieces.choice([1, 100, 4000, 40000, 400000])
                s.sendall(data[:n])
                data = data[n:]
            s.shutdown(socket.SHUT_WR)

        threads = [threading.Thread(target=write, args=[s, n]) for n, s in enumerate((p.app, p.envoy))]
        sums = {}

        def read(s, name):
            h, pieces = hashlib.sha256(), random.Random(name)
            while chunk := s.recv(pieces.choice([1, 5000, 60000])):
                h.update(chunk)
            sums[name] = h.hexdigest()
        threads += [threading.Thread(target=read, args=[s, n]) for n, s in ((1, p.app), (0, p.envoy))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return [sums.get(n) == hashlib.sha256(_bytes(n, size)).hexdigest() for n in (0, 1)]


def _edge(way, size=2 << 20):
    """A writer and a reader that are told once (EPOLLET), as Envoy is."""
    with Pair(way) as p:
        for s in p.app, p.envoy:
            s.setblocking(False)
        poll = select.epoll()
        poll.register(p.app, select.EPOLLOUT | select.EPOLLET)
        poll.register(p.envoy, select.EPOLLIN | select.EPOLLET)
        left, h = memoryview(_bytes(7, size)), hashlib.sha256()
        total = 0
        while total < size:
            ready = poll.poll(60)
            if not ready:
                return f'nobody was told after {total}'
            for fd, _ in ready:
                try:
                    while fd == p.app.fileno() and left:
                        left = left[p.app.send(left[:100000]):]
                    while fd == p.envoy.fileno():
                        chunk = p.envoy.recv(16384)
                        h.update(chunk)
                        total += len(chunk)
                except BlockingIOError:
                    pass
        poll.close()
        return h.hexdigest() == hashlib.sha256(_bytes(7, size)).hexdigest()


def _stuck(way, most=16 << 20):
    """A reader that does not read makes the writer wait, and loses nothing."""
    with Pair(way) as p:
        p.app.setblocking(False)
        written, piece = 0, _bytes(3, 1 << 16)
        while written < most:
            n = _said(p.app.send, piece[written % len(piece):])
            if isinstance(n, str):
                break
            written += n
        used = struct.unpack('=9I', p.envoy.getsockopt(socket.SOL_SOCKET, _MEMINFO, 36))
        p.app.shutdown(socket.SHUT_WR)
        data, end = _all(p.envoy)
        wanted = (piece * (written // len(piece) + 1))[:written]
        return n, used[0] <= 2 * used[1], data == wanted, end


def _drains(way):
    """After it was stuck, and read: the writer is told, and all goes on."""
    with Pair(way) as p:
        p.app.setblocking(False)
        piece, written = bytes(1 << 16), 0
        while not isinstance(n := _said(p.app.send, piece), str):
            written += n
        while written:
            written -= len(p.envoy.recv(1 << 20))
        told = bool(select.select([], [p.app], [], 60)[1])
        p.app.setblocking(True)
        p.app.sendall(b'on')
        return told, p.envoy.recv(10)


def _peeks(way):
    with Pair(way) as p:
        p.app.sendall(b'hello')
        p.app.sendall(b'world')
        return [p.envoy.recv(3, socket.MSG_PEEK), p.envoy.recv(5, socket.MSG_PEEK), p.envoy.recv(10, socket.MSG_WAITALL)]


def _half_closed(way):
    seen = []
    for first in 'app', 'envoy':
        with Pair(way) as p:
            ends = (p.app, p.envoy) if first == 'app' else (p.envoy, p.app)
            ends[0].sendall(b'a')
            ends[0].shutdown(socket.SHUT_WR)
            seen.append(_all(ends[1]))
            ends[1].sendall(b'bc' * 30000)
            ends[1].close()
            data, end = _all(ends[0])
            seen.append((len(data), end, _said(ends[0].send, b'd')))
    return seen


def _reset(way):
    """What was sent before is read first; the other end hears."""
    seen = []
    for first in 'app', 'envoy':
        with Pair(way) as p:
            ends = (p.app, p.envoy) if first == 'app' else (p.envoy, p.app)
            ends[0].sendall(b'a' * 50000)
            ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOW)
            ends[0].close()
            data, end = _all(ends[1])
            seen.append((len(data), end, _said(ends[1].send, b'd')))
    return seen


def _gone(way):
    """An Envoy that ended: the app's second word is refused."""
    with Pair(way) as p:
        p.envoy.close()
        seen = [p.app.recv(10), _said(p.app.send, b'a')]
        select.select([], [], [p.app], 0)
        seen += [_said(p.app.recv, 10)]
        return seen, _said(p.app.send, b'a')


def _forked(act):
    pid = os.fork()
    if pid:
        return pid
    try:
        while True:
            act()
    finally:
        os._exit(0)


def _end(pid):
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def _killed(way):
    """A program that is killed in mid-stream: its reader has the beginning of what it wrote; its writer hears."""
    piece, seen = _bytes(11, 1 << 16), []
    with Pair(way) as p:
        writer = _forked(lambda: (p.envoy.close(), p.app.sendall(piece)))
        p.app.close()
        got = b''
        while len(got) < 1 << 20:
            got += p.envoy.recv(1 << 16)
        _end(writer)
        rest, _ = _all(p.envoy)
        got += rest
        seen.append(got == (piece * (len(got) // len(piece) + 1))[:len(got)])
    with Pair(way) as p:
        reader = _forked(lambda: (p.app.close(), p.envoy.recv(10000)))
        p.envoy.close()
        for _ in range(30):
            p.app.sendall(piece)
        _end(reader)
        said = None
        while not isinstance(said, str):
            said = _said(p.app.sendall, piece)
        seen.append(said in ('EPIPE', 'ECONNRESET'))
    return seen


def _idle(way):
    """The kernel's own questions whether the other end is there are answered, and bytes go on afterwards."""
    if way != 'outbound':
        return None
    with Pair(way) as p:
        for s in p.app, p.envoy:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 5)):
                s.setsockopt(socket.IPPROTO_TCP, option, value)
        p.app.sendall(b'before')
        first, sent = p.envoy.recv(10), _segments(p.app)
        while _segments(p.app) < sent + 4:  # two questions, and two answers
            select.select([p.app], [], [], 0.1)
        p.app.sendall(b'after')
        p.envoy.sendall(b'back')
        return first, p.envoy.recv(10), p.app.recv(10)


def _segments(s):
    """How many it has sent: tcpi_segs_out."""
    return struct.unpack_from('=I', s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232), 136)[0]


def _files(way):
    with Pair(way) as p, tempfile.TemporaryFile() as f:
        data = _bytes(5, 300000)
        f.write(data)
        f.flush()
        t = threading.Thread(target=lambda: [p.app.sendfile(f), p.app.shutdown(socket.SHUT_WR)])
        f.seek(0)
        t.start()
        got = _all(p.envoy)
        t.join()
        return got == (data, b'')


def _spliced_in(way):
    with Pair(way) as p:
        r, w = os.pipe()
        os.write(w, b'spliced')
        n = os.splice(r, p.app.fileno(), 100)
        os.close(r)
        os.close(w)
        return n, p.envoy.recv(100)


def _apps_habits(way):
    """How an app may read, which nobody can know."""
    with Pair(way) as p:
        r, w = os.pipe()
        p.envoy.sendall(b'spliced')
        n = os.splice(p.app.fileno(), w, 100)
        got = os.read(r, 100)
        os.close(r)
        os.close(w)
        p.envoy.sendall(b'12345')
        p.app.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 6)
        few = bool(select.select([p.app], [], [], 0)[0])
        p.envoy.send(b'6', socket.MSG_OOB)
        urgent = p.app.recv(1, socket.MSG_OOB)
        return n, got, few, urgent, p.app.recv(10)


def _shut_writer(way):
    with Pair(way) as p:
        p.app.sendall(b'a')
        p.app.shutdown(socket.SHUT_WR)
        return _said(p.app.send, b'b'), _all(p.envoy)


def _notified(s):
    """Do the kernel's words on MSG_ZEROCOPY come?"""
    s.send(bytes(20000), _MSG_ZEROCOPY)
    return s


def _zerocopy_first(way):
    """Asked for before the dial: the connection is as without acceleration."""
    if way == 'inbound':
        return None
    with Pair(way, prepare=lambda s: s.setsockopt(socket.SOL_SOCKET, _ZEROCOPY, 1)) as p:
        _notified(p.app)
        got = 0
        while got < 20000:
            got += len(p.envoy.recv(1 << 16))
        told = select.poll()
        told.register(p.app, select.POLLERR)
        return bool(told.poll(60000)), len(p.app.recvmsg(0, 200, socket.MSG_ERRQUEUE)[1])


def _again(way):
    """One socket for two connections, the second to the pod itself."""
    if way != 'outbound':
        return None
    with Pair(way) as p:
        p.app.sendall(b'first')
        first = p.envoy.recv(10)
        own = socket.create_server(('127.0.0.1', 0))
        ctypes.CDLL(None).connect(p.app.fileno(), struct.pack('=H14x', socket.AF_UNSPEC), 16)
        p.app.connect(own.getsockname())
        accepted, _ = own.accept()
        p.app.sendall(b'second')
        with own, accepted:
            return first, accepted.recv(10), _said(p.envoy.recv, 10)


def _many(way):
    """Ports come round."""
    for n in range(MANY):
        with Pair(way) as p:
            p.app.sendall(b'%d' % n)
            if p.envoy.recv(10) != b'%d' % n:
                return n
            p.envoy.sendall(b'%d' % n)
            if p.app.recv(10) != b'%d' % n:
                return n
    return 'same'


STORIES = {f.__name__[1:]: f for f in (
    _early, _unread_before_more, _streams, _edge, _stuck, _drains, _peeks, _half_closed, _reset, _gone, _killed, _idle, _files,
    _spliced_in, _apps_habits, _shut_writer, _zerocopy_first, _again, _many)}


_OF_APPS = {'early', 'zerocopy_first', 'apps_habits', 'again'}  # whose way to be asked has a meaning for an app alone
STORIES_BETWEEN = {'there': STORIES.keys() - {'apps_habits', 'again'}, 'back': STORIES.keys() - _OF_APPS}


def tell(name, way):
    return _said(STORIES[name], way)


def waiting(way='outbound'):
    """What an app is told of what waits for it."""
    with Pair(way) as p:
        p.envoy.sendall(b'12345')
        select.select([p.app], [], [], 5)
        said = array.array('i', [0])
        fcntl.ioctl(p.app, termios.FIONREAD, said)
        return said[0]


# --- who ends first, by IPv6 ---
_LAST_ACK, _FIN_WAIT_2 = '09', '05'


def _standing(state):
    """How many ends of connections to Envoy are in that state."""
    with open('/proc/thread-self/net/tcp6', encoding='ascii') as f:
        return sum(row[3] == state and f':{OUT:04X}' in row[1] + row[2] for row in map(str.split, f))


def app_ends_first(source):
    """And Envoy when it has acknowledged that: who dialled, and how many of Envoy's ends stay."""
    peers = set()
    for _ in range(20):
        with Pair('outbound6', prepare=source and (lambda s: s.bind((source, 0)))) as p:
            peers.add(p.envoy.getpeername()[0])
            p.app.close()
            p.envoy.recv(1)
            p.envoy.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            wait_for('the acknowledgement', lambda: _standing(_FIN_WAIT_2), 60, 0)
    with contextlib.suppress(TimeoutError):
        wait_for('the last word', lambda: not _standing(_LAST_ACK), 60)  # Linux gives up after 108 s
    return peers, _standing(_LAST_ACK)


def in_a_row(way, count):
    for _ in range(count):
        with Pair(way) as p:
            p.app.close()
    return count


_SOAKED = (_early, _unread_before_more, _edge, _stuck, _half_closed, _reset, _files, _shut_writer, _many)


def soak(seed, size, connections, ways=WAYS):
    """Every kind again and again, until so many bytes went over it both ways in so many connections: what was wrong,
    and how much it was."""
    chosen, first, done, met = random.Random(seed), {}, 0, 0
    while done < size or met < connections:
        way = chosen.choice(ways)
        if done < size:
            n = chosen.randint(1, min(64 << 20, size))
            if _said(_streams, way, n) != [True, True]:
                return f'{way}: a stream of {n}', done, met
            done, met = done + 2 * n, met + 1
        story = chosen.choice([s for s in _SOAKED if way not in BETWEEN or s is not _early])
        told = _said(story, way)
        if story is _stuck:
            told = told[1:]  # what it took is the kernel's choice
        if first.setdefault((way, story), told) != told:
            return f'{way}: {story.__name__}: {told}, before {first[way, story]}', done, met
        met += MANY if story is _many else 2 if story in (_half_closed, _reset) else 1
    return None, done, met


def refused():
    """What a connection that is accelerated does not do.  (TLS that was asked for first: tests/vm/ktls.c.)"""
    with Pair() as p:
        return (p.app.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), _said(p.app.setsockopt, socket.SOL_SOCKET, _ZEROCOPY, 1),
                _said(p.app.setsockopt, socket.IPPROTO_TCP, _ULP, b'tls'))


def cut(way):
    """A stream that somebody ends: did what arrived begin as what was sent, how much was it, and what heard the writer?"""
    with Pair(way) as p:
        piece, said = _bytes(11, 1 << 16), []

        def write():
            n = 0
            while not isinstance(n, str):
                n = _said(p.app.sendall, piece)
            said.append(n)
        t = threading.Thread(target=write)
        t.start()
        data, _ = _all(p.envoy)
        t.join()
        return data == (piece * (len(data) // len(piece) + 1))[:len(data)], len(data), said[0]


def _past_the_first(p):
    """The first short sends go by TCP."""
    for _ in range(6):
        p.app.sendall(b'.')
        p.envoy.recv(1)


def urgent(way='outbound'):
    """What Envoy reads of three words, the second an urgent one."""
    with Pair(way) as p:
        _past_the_first(p)
        p.app.send(b'ab')
        p.app.send(b'!', socket.MSG_OOB)
        p.app.send(b'cd')
        p.app.shutdown(socket.SHUT_WR)
        return _all(p.envoy)[0]


def unread_end(way='outbound'):
    """What the app sees of an Envoy that ends without having read."""
    with Pair(way) as p:
        _past_the_first(p)
        p.app.sendall(b'unread')
        p.envoy.close()
        return _said(p.app.recv, 10)


# --- a connection that is kept while other things happen ---
_kept = {}
_WORD = b'the same words again and again. '
WORDS, UNREAD = len(_WORD), 200  # so many are no short send: they go from socket to socket


def keep(name, way='outbound'):
    _kept[name] = Pair(way)
    return talk_on(name)


def talk_on(name):
    p = _kept[name]
    p.app.sendall(_WORD)
    p.envoy.sendall(_WORD)
    return [s.recv(WORDS, socket.MSG_WAITALL) for s in (p.app, p.envoy)] == [_WORD] * 2


def leave_unread(name):
    _kept[name].app.sendall(_WORD * UNREAD)


def read_unread(name):
    data = b''
    while len(data) < WORDS * UNREAD:
        data += _kept[name].envoy.recv(1 << 16)
    return data == _WORD * UNREAD


def let_go(name):
    p = _kept.pop(name)
    p.app.close()
    p.envoy.close()
