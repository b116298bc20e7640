"""Who asks for names, and who answers: every resolver library, sockets with several servers (ebpf-redirect.md 10.8).

The DNS proxy of the pod is a stand-in with the broker's mark; its answers differ from those of the servers elsewhere.
"""
import itertools
import os
import shutil
import socket

import pytest

from . import cast, names, scene
from .pod import HERE
from .run import PATIENCE_S, Process, sh
from .scene import APP, ENVOY, FAR, OWN, PEER, PEER6, SERVICE, SERVICE6

PROXY, SERVER, ITSELF = (names.ANSWERS[who][0] for who in ('dns', 'peer', 'app'))
NAME = 'some.test'
GO = shutil.which('go') or shutil.which('/usr/local/go/bin/go')
_log = itertools.count()


@pytest.fixture
def side(capturing):
    node = capturing()
    node.agentd.start()
    made = scene.Captured(node)
    made.peer.call(cast.serve, 'peer', 0, 0, [53], [53], None, True)
    configure(made)
    return made


def configure(side, **redirect):
    side.configure({'redirect_dns': 'true', **redirect})
    proxy(side)


def proxy(side):
    side.pod.call(cast.serve, 'dns', ENVOY, ENVOY, [15053], [15053], side.mark, True)


def run(side, *argv, uid=APP, servers=(PEER,)):
    """What a program of the pod says that has such a resolv.conf."""
    number = next(_log)
    conf = side.pod.dir / f'resolv{number}.conf'
    conf.write_text(''.join(f'nameserver {s}\n' for s in servers) + 'options timeout:20 attempts:2\n')
    process = Process(side.pod.netns.command(
        'unshare', '--mount', '--propagation', 'private', 'sh', '-c', 'mount --bind "$0" /etc/resolv.conf && exec "$@"',
        conf, 'setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', *argv),
        side.pod.dir / f'run{number}.log', side.pod.cgroup)
    process.wait()
    return process.tail()


def dig(side, *argv, **kw):
    return run(side, 'dig', '+short', '+tries=1', '+time=20', *argv, NAME, 'A', **kw)


def test_dig(side):
    for argv in ((), ('+tcp',), (f'@{SERVICE}',), ('@127.0.0.53',), (f'@{PEER6}',), (f'@{PEER6}', '+tcp'),
                 (f'@{SERVICE6}',), (f'@{OWN}',), ('@::1',), ('-b', OWN), ('-b', OWN, '+tcp')):
        assert dig(side, *argv) == PROXY, argv
    for argv in ((), ('+tcp',), (f'@{PEER6}',)):
        assert dig(side, *argv, uid=ENVOY) == SERVER, argv


def musl(side):
    binary = side.pod.dir / 'resolve'
    sh('musl-gcc', '-static', '-o', binary, HERE / 'resolve.c')
    return binary, NAME


def go(side):
    """Its own resolver, not libc's."""
    source = side.pod.dir / 'resolve.go'
    source.write_text('package main\nimport ("fmt"; "net"; "os")\nfunc main() {\n\tfound, err := net.LookupHost(os.Args[1])'
                      '\n\tfmt.Println(found, err)\n}\n')
    sh(GO, 'build', '-o', side.pod.dir / 'resolve-go', source, env={**os.environ, 'CGO_ENABLED': '0', 'GO111MODULE': 'off'})
    return side.pod.dir / 'resolve-go', NAME


def glibc(_side):
    return 'getent', 'ahostsv4', NAME


@pytest.mark.parametrize('resolver', [glibc, musl] + ([go] if GO and os.environ.get('AGENTD_SOAK') else []))
def test_resolvers(side, resolver):
    argv = resolver(side)
    for servers in (PEER,), (PEER, SERVICE, FAR), (PEER6,), ('127.0.0.53',), (PEER6, PEER):
        assert PROXY in run(side, *argv, servers=servers), servers
    assert SERVER in run(side, *argv, uid=ENVOY)
    side.pod.call(cast.stop, 'dns')
    assert SERVER in run(side, *argv), 'without the proxy the pod has its own resolver'


# --- sockets ---
def _ask(s, to, number, port=53):
    s.sendto(names.question(NAME, number), (to, port))


def _take(s):
    reply, (source, port, *_) = s.recvfrom(2048)
    return int.from_bytes(reply[:2], 'big'), source, port, names.address_in(reply)


def ask_many(servers):
    """One socket, all questions first."""
    with cast.user(APP, APP), socket.socket(cast.family_of(servers[0]), socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE_S)
        for number, to in enumerate(servers):
            _ask(s, to, number)
        return sorted(_take(s) for _ in servers)


def connect_again(first, second):
    """A connected socket finds another server, then one that is none."""
    seen = []
    with cast.user(APP, APP), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE_S)
        for to in first, second:
            s.connect((to, 53))
            s.send(names.question(NAME))
            seen.append((s.getpeername(), names.address_in(s.recv(2048))))
        s.connect((first, 8080))
        return seen, s.getpeername()


def ask_bound(source):
    with cast.user(APP, APP), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE_S)
        s.bind((source, 0))
        _ask(s, PEER, 1)
        return _take(s)


def ask_elsewhere():
    """A port that is not DNS, from the socket that just asked a name."""
    with cast.user(APP, APP), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE_S)
        _ask(s, PEER, 1)
        first = _take(s)
        _ask(s, PEER, 2, 5353)
        return first, _take(s)


def test_sockets(side):
    call = side.pod.call
    for servers in [PEER, SERVICE, FAR], [PEER, SERVICE, FAR, '192.0.2.8']:
        assert call(ask_many, servers) == [(n, to, 53, PROXY) for n, to in enumerate(servers)]
    assert call(ask_many, [PEER6]) == [(0, PEER6, 53, PROXY)]
    assert call(connect_again, PEER, SERVICE) == ([((PEER, 53), PROXY), ((SERVICE, 53), PROXY)], (PEER, 8080))
    assert call(ask_bound, OWN) == (1, PEER, 53, PROXY)
    side.peer.call(cast.serve, 'app', 0, 0, [], [5353])
    assert call(ask_elsewhere) == ((1, PEER, 53, PROXY), (2, PEER, 5353, ITSELF))


def test_only_the_servers_of_the_pod(side):
    configure(side, dns_servers=f'{PEER},127.0.0.53,{PEER6}')
    for argv, expected in (('@' + PEER, PROXY), ('@127.0.0.53', PROXY), ('@' + PEER6, PROXY), ('@' + SERVICE, SERVER),
                           ('@' + SERVICE6, SERVER), ('@' + OWN, ITSELF)):
        assert dig(side, argv) == expected, argv


def test_only_a_marked_listener_is_asked(side):
    """A program of the pod that listens on 15053 is nobody's DNS proxy."""
    side.pod.call(cast.serve, 'dns', APP, APP, [15053], [15053], None, True)
    assert [dig(side), dig(side, '@' + PEER6), dig(side, '@' + OWN)] == [SERVER, SERVER, ITSELF]
    proxy(side)
    assert dig(side) == PROXY
