"""What a pod's creation waits for at agentd-injector while others do their worst, as a multiple of the same with the others elsewhere.

    build/venv/bin/python3 -m tests.bench.injector [SECONDS]        (after make binaries)

An API server's client asks for an ordinary pod, over one connection, again and again.  The attackers ask the same injector, or, as the
control, another one beside it: so they take the same CPU of the machine.  A tenant's pods come from the API server's address, a
stranger's connections from another one.
"""
import contextlib
import json
import multiprocessing
import socket
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.injector import Injector, review
from tests.work import cases

CONNECTIONS, PAIRS = 50, 3
HEAD = b'POST /inject HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n'


def connect(port, source):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(('127.0.0.1', port), 10, (source, 0)))


def again(what):
    while True:
        with contextlib.suppress(OSError):
            what()


def handshakes(port):
    again(lambda: connect(port, '127.0.0.2').close())


def halves(port):
    """As many connections as there are, each with half of a request."""
    held = []

    def one():
        held.append(s := connect(port, '127.0.0.2'))
        s.sendall(HEAD % (2 << 20) + b'x' * (1 << 20))
        del held[:-CONNECTIONS]
    again(one)


def answered(s, body):
    s.sendall(HEAD % len(body) + body)
    head, _, rest = s.recv(1 << 20).partition(b'\r\n\r\n')
    left = int(next(line for line in head.split(b'\r\n') if line.lower().startswith(b'content-length')).split(b':')[1]) - len(rest)
    while left > 0:
        left -= len(s.recv(1 << 20)) or left


def asks(port, source, body):
    def one():
        with connect(port, source) as s:
            while True:
                answered(s, body)
    again(one)


def stranger(port):
    asks(port, '127.0.0.2', cases.review(cases.pod({'x': [1] * 29900})))


def tenant(port):
    asks(port, '127.0.0.1', dict(cases.reviews(1000, only=('probes',)))['probes'])


ATTACKS = {'a tenant: worst pods, one at a time': [tenant], 'a stranger: handshakes': [handshakes], 'a stranger: half requests': [halves],
           'a tenant, and a stranger with half requests': [tenant, halves], 'a stranger: worst reviews': [stranger]}


def latencies(server, seconds):
    """ms of each question."""
    body, found, end = json.dumps(review()).encode(), [], time.monotonic() + seconds
    s = connect(server.port, '127.0.0.1')
    while time.monotonic() < end:
        began = time.perf_counter()
        answered(s, body)
        found.append((time.perf_counter() - began) * 1000)
        time.sleep(0.002)
    return found


def under(attackers, target, asked, seconds):
    """Ordinary pods at `asked` while the attackers are at `target`."""
    running = [multiprocessing.Process(target=a, args=(target.port,), daemon=True) for a in attackers]
    for p in running:
        p.start()
    time.sleep(1)
    try:
        return latencies(asked, seconds)
    finally:
        for p in running:
            p.kill()
            p.join()


def p99(found):
    return statistics.quantiles(found, n=100)[98]


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as top:
        one, other = (Injector(Path(top) / name, mode='release').start() for name in ('one', 'other'))
        print(f'{"":46}{"pods":>7}{"p50 ms":>9}{"p99 ms":>9}{"control":>9}{"ratio":>8}{"peak MiB":>10}   {PAIRS} pairs of {seconds:g} s')
        for name, attackers in ATTACKS.items():
            hit, control = [], []
            for _ in range(PAIRS):
                hit += under(attackers, one, one, seconds)
                control += under(attackers, other, one, seconds)
            print(f'{name:46}{len(hit):7}{statistics.median(hit):9.2f}{p99(hit):9.2f}{p99(control):9.2f}{p99(hit) / p99(control):8.1f}'
                  f'{one.memory_kib("VmHWM") / 1024:10.1f}', flush=True)
        one.remove()
        other.remove()


if __name__ == '__main__':
    main()
