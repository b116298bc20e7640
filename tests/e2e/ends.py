"""Connections of an app to its own Envoy by IPv6, both ends in hand: who ends first, and what is left (ebpf-redirect.md 13).

Runs in a pod's own process, as root: a socket belongs to the user who made it (cast.user).
"""
import contextlib
import socket

from . import cast
from .run import wait_for
from .scene import APP, ENVOY, FAR6

OUT = 15001
_LAST_ACK, _FIN_WAIT_2 = '09', '05'
_listeners = []


@contextlib.contextmanager
def _pair(source=None):
    """A captured dial: the app's end, Envoy's end."""
    if not _listeners:
        with cast.user(ENVOY, ENVOY):
            _listeners.append(socket.create_server(('::', OUT), family=socket.AF_INET6))
    with cast.user(APP, APP):
        app = socket.socket(socket.AF_INET6)
        if source:
            app.bind((source, 0))
        app.connect((FAR6, 80))
    envoy, _ = _listeners[0].accept()
    with app, envoy:
        yield app, envoy


def _standing(state):
    """How many ends of connections to Envoy are in that state."""
    with open('/proc/thread-self/net/tcp6', encoding='ascii') as f:
        return sum(row[3] == state and f':{OUT:04X}' in row[1] + row[2] for row in map(str.split, f))


def app_ends_first(source):
    """And Envoy when it has acknowledged that: who dialled, and how many of Envoy's ends stay."""
    peers = set()
    for _ in range(20):
        with _pair(source) as (app, envoy):
            peers.add(envoy.getpeername()[0])
            app.close()
            envoy.recv(1)
            envoy.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            wait_for('the acknowledgement', lambda: _standing(_FIN_WAIT_2), 60, 0)
    with contextlib.suppress(TimeoutError):
        wait_for('the last word', lambda: not _standing(_LAST_ACK), 60)  # Linux gives up after 108 s
    return peers, _standing(_LAST_ACK)


def in_a_row(count):
    for _ in range(count):
        with _pair() as (app, _):
            app.close()
    return count
