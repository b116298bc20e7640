"""Both ends of a pod's DNS.

lookups.py resolver COUNT [ADDRESS ...]   a name server at port 53 with one answer (names.py: `peer`); counts in COUNT
lookups.py cluster COUNT ADDRESS NAME=ADDRESS ...   one that has these names and denies all others
lookups.py load NAME COUNTS    glibc looks NAME up without pause; counts in the file COUNTS, for ever: `lost` are
                               those that had no answer at first, and were asked again
lookups.py connected NAME SERVER COUNTS   the same through one socket, connected for ever: `refused` are errors of that
                               socket, `wrong` are answers that do not have the name
lookups.py one NAME            what glibc finds, as JSON
"""
import itertools
import json
import os
import selectors
import socket
import sys
import threading
import time

import names  # beside this file, when it runs as a program

THREADS = 4
PATIENCE_S = 10  # of glibc with one server: nothing else takes so long, on however slow a machine


def _write(path, content):
    with open(f'{path}.new', 'w', encoding='utf-8') as f:
        json.dump(content, f)
    os.rename(f'{path}.new', path)


def _over_tcp(listener, count):
    connection, _ = listener.accept()

    def serve():
        with connection:
            connection.settimeout(60)
            names.over_tcp(connection, 'peer')
    count['tcp'] += 1
    threading.Thread(target=serve, daemon=True).start()


def _over_udp(s, count):
    query, client = s.recvfrom(4096)
    count['udp'] += 1
    s.sendto(names.answer(query, 'peer'), client)


def resolver(counted, *addresses):
    count, selector = {'udp': 0, 'tcp': 0}, selectors.DefaultSelector()
    for address in addresses:
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        for kind, how in (socket.SOCK_STREAM, _over_tcp), (socket.SOCK_DGRAM, _over_udp):
            s = socket.socket(family, kind)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((address, 53))
            if kind == socket.SOCK_STREAM:
                s.listen(64)
            selector.register(s, selectors.EVENT_READ, how)
    while True:
        _write(counted, count)
        for key, _ in selector.select():
            key.data(key.fileobj, count)


def cluster(counted, address, *known):
    """Of one thread: many ask."""
    known, count = dict(name.split('=') for name in known), {'udp': 0, 'denied': 0}
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    s.bind((address, 53))
    listener = socket.create_server((address, 53), backlog=64)

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=names.over_tcp, args=[connection, known, names.cluster_answer], daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    for n in itertools.count():
        if n % 100 == 0:
            _write(counted, count)
        query, client = s.recvfrom(4096)
        reply = names.cluster_answer(query, known)
        count['udp'] += 1
        count['denied'] += reply[3] & 15 == 3
        s.sendto(reply, client)


def look_up(name):
    try:
        return sorted({at[0] for *_, at in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)})
    except OSError as e:
        return f'{type(e).__name__}: {e}'


def load(name, counted):
    counts, lock = {'ok': 0, 'failed': 0, 'lost': 0, 'each': [0] * THREADS, 'why': [], 'seen': []}, threading.Lock()
    os.environ['RES_OPTIONS'] = f'timeout:{PATIENCE_S}'

    def run(thread):
        while True:
            began = time.monotonic()
            found = look_up(name)
            with lock:
                good = isinstance(found, list)
                counts['ok' if good else 'failed'] += 1
                counts['each'][thread] += 1
                counts['lost'] += time.monotonic() - began >= PATIENCE_S
                counts['why'] = (counts['why'] + [found] * (not good))[:10]
                if good and found not in counts['seen']:
                    counts['seen'].append(found)
                _write(counted, counts)
            time.sleep(0.002)
    for thread in range(THREADS):
        threading.Thread(target=run, args=[thread], daemon=True).start()
    threading.Event().wait()


def _ask_connected(s, name, number):
    """What the answer is; asked again after each failure of the server, as resolvers do."""
    while True:
        s.send(names.question(name, number))
        while (reply := s.recv(4096))[:2] != number.to_bytes(2, 'big'):
            pass
        if (code := reply[3] & 15) != 2:
            return 'ok' if code == 0 and reply[7] else 'wrong'


def connected(name, server, counted):
    counts = {'ok': 0, 'wrong': 0, 'refused': 0, 'silent': 0}
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(PATIENCE_S)
    s.connect((server, 53))
    for number in itertools.cycle(range(1 << 16)):
        try:
            counts[_ask_connected(s, name, number)] += 1
        except TimeoutError:
            counts['silent'] += 1
        except OSError:
            counts['refused'] += 1
        _write(counted, counts)
        time.sleep(0.002)


if __name__ == '__main__':
    what, *rest = sys.argv[1:]
    if what == 'one':
        print(json.dumps(look_up(*rest)))
    else:
        {'resolver': resolver, 'cluster': cluster, 'load': load, 'connected': connected}[what](*rest)
