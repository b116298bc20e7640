"""Whose connection is it?  With real namespaces and cgroups."""
import contextlib
import os
import platform
import re
import signal
import socket
import sys
import time
import uuid
from pathlib import Path

import pytest
import yaml

from . import clients, strangers
from .conftest import start_served
from .netns import Netns
from .run import Cgroup, wait_for
from .strangers import Place

SOAK = bool(os.environ.get('AGENTD_SOAK'))
TRIES = 10_000 if SOAK else 500
ROUNDS, OLD_ROUNDS = (1000, 1000) if SOAK else (50, 15)
UNBOUNDED = {'pod_requests_per_second': 10_000, 'pod_requests_burst': 100_000, 'pods_requests_per_second': 1_000_000}
CLOCK_S = 0.1
YOUNG_S = 0.3 + CLOCK_S  # of broker/pods/peer.c, and the steps of its clock
PING = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b'12345678'


def sockets(pod):
    return next(p for p in pod.node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)['sockets']


def refused_by(pod):
    return sockets(pod)['refused_by']


def metric(node, reason):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(node.agentd.run / 'admin.sock'))
        s.sendall(b'GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n')
        text = s.makefile().read()
    found = re.search(rf'^agentd_connections_refused_total{{reason="{reason}"}} (\d+)', text, re.M)
    return int(found[1]) if found else 0


def start(node, *names):
    """Every try is judged, none is one too many."""
    node.agentd.settings.update(UNBOUNDED)
    return start_served(node, *names)


def test_another_pods_socket_gives_nothing(node):
    """Pod A reaches pod B's socket, as by a hostPath."""
    one, two = start(node, 'one', 'two')
    with Place(one.cgroup, one.netns.path) as a:
        for path in (two.mount / 'socket', two.mount / 'XDS'):
            assert a.call(strangers.refused, path) == 0
        assert refused_by(two) == {'netns': 2} and metric(node, 'netns') == 2
        assert a.call(strangers.refused, two.mount / 'socket', TRIES) == 0
    assert refused_by(two) == {'netns': TRIES + 2}
    assert refused_by(one) == {} and one.is_served()
    wait_for('the pod itself', lambda: two.is_served())


def test_both_the_namespace_and_the_cgroup_must_be_the_pods(node):
    """i#61211: one of both is not enough, and no uid is; nor must it be any."""
    one, two = start(node, 'one', 'two')
    elsewhere = node.cgroup('elsewhere')
    path = one.mount / 'socket'
    cases = [(elsewhere, one.netns.path, 'cgroup'), (two.cgroup, one.netns.path, 'cgroup'),
             (one.cgroup, two.netns.path, 'netns'), (one.cgroup, None, 'netns'), (elsewhere, None, 'netns')]
    for cgroup, namespace, reason in cases:
        before = refused_by(one).get(reason, 0)
        with Place(cgroup, namespace) as place:
            assert place.call(strangers.refused, path) == 0
            for uid in (1337, 4242):
                assert place.call(strangers.as_uid, uid, strangers.refused, path) == 0
        assert refused_by(one)[reason] == before + 3, (cgroup.path, namespace)
    with Place(one.cgroup, one.netns.path) as place:
        before = refused_by(one)['netns']
        assert place.call(strangers.unshared, strangers.refused, path) == 0
        assert refused_by(one)['netns'] == before + 1
        assert place.call(strangers.served, path)
        for uid in (1337, 4242):
            assert place.call(strangers.as_uid, uid, strangers.served, path)
    elsewhere.remove()


def test_a_cgroup_below_the_pods_is_the_pods(node):
    one, = start(node, 'one')
    nested = Cgroup(f'{one.cgroup.below_root()}/container')
    deeper = Cgroup(f'{nested.below_root()}/more')
    for cgroup in (nested, deeper):
        with Place(cgroup, one.netns.path) as place:
            assert place.call(strangers.served, one.mount / 'socket')
            assert place.call(strangers.served, one.mount / 'XDS')
    known = sockets(one)['attested']
    assert {str(c.path.stat().st_ino) for c in (one.cgroup, nested, deeper)} == set(known['cgroup_ids'])
    assert known['unproven'] == ''
    deeper.remove()
    nested.remove()


def test_a_number_that_was_given_again(node):
    """Who connected is dead before anybody looks, and a process of the pod has its number."""
    one, = start(node, 'one')
    elsewhere = node.cgroup('elsewhere')
    worker = node.agentd.worker_pid()
    with Place(elsewhere, one.netns.path) as outside, Place(one.cgroup, one.netns.path) as inside:
        for _ in range(ROUNDS):
            os.kill(worker, signal.SIGSTOP)
            try:
                number = outside.call(strangers.connect_and_die, one.mount / 'socket')
                assert inside.call(strangers.impostor, number) == number
            finally:
                os.kill(worker, signal.SIGCONT)
            assert outside.call(strangers.what_came) == 0
            inside.call(strangers.kill, number)
    assert refused_by(one) == {'exited': ROUNDS}
    elsewhere.remove()


@pytest.mark.skipif(platform.machine() != 'x86_64', reason='old_kernel.py knows the calls of x86_64')
@pytest.mark.parametrize('kernel', ['6.12', '6.1'])
def test_older_kernels_tell_as_much(node, kernel):
    """All of it where a peer's cgroup is in lists only, and where nothing but a number tells who it is."""
    node.agentd.around = [sys.executable, Path(strangers.__file__).with_name('old_kernel.py'), kernel]
    node.agentd.settings.update(UNBOUNDED)
    one = node.pod('one')
    node.agentd.start()
    one.wait_served()
    wait_for('a peer that is old enough', lambda: one.is_served())
    path, elsewhere = one.mount / 'socket', node.cgroup('elsewhere')
    worker, before = node.agentd.worker_pid(), refused_by(one).get('exited', 0)
    with Place(elsewhere, one.netns.path) as outside, Place(one.cgroup, one.netns.path) as inside:
        wait_for('its first answer', lambda: inside.call(strangers.served, path))
        outside.call(os.getpid)  # it is there
        time.sleep(YOUNG_S)
        assert outside.call(strangers.refused, path, 20) == 0
        assert refused_by(one)['cgroup'] == 20
        told = 0
        while told < OLD_ROUNDS:
            began = time.monotonic()
            os.kill(worker, signal.SIGSTOP)
            try:
                number = outside.call(strangers.connect_and_die, path)
                assert inside.call(strangers.impostor, number) == number
            finally:
                os.kill(worker, signal.SIGCONT)
            came = outside.call(strangers.what_came)
            inside.call(strangers.kill, number)
            if time.monotonic() - began < YOUNG_S - CLOCK_S:  # else the machine was too busy: the impostor was old, which nothing can tell
                assert came == 0
                told += 1
        assert refused_by(one)['exited'] >= before + OLD_ROUNDS and refused_by(one)['cgroup'] == 20
        known = sockets(one)['attested']
        assert known['unproven'] == '' and known['cgroup_ids'] == [str(one.cgroup.path.stat().st_ino)]
        with handed_over(inside, path, node.agentd.run, YOUNG_S) as (connection, leave):
            leave()
            strangers.drain(connection)
    elsewhere.remove()


@contextlib.contextmanager
def handed_over(place, path, directory, age_s=0):
    """The connection of a process at `place`, in our hands; `leave` ends that process."""
    name = str(directory / 'h')
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        pid = place.call(strangers.hand_over, path, name, age_s)
        with listener.accept()[0] as giver:
            _, fds, _, _ = socket.recv_fds(giver, 1, 1)
            with socket.socket(fileno=fds[0]) as connection:
                connection.settimeout(strangers.PATIENCE_S)

                def leave():
                    giver.send(b'x')
                    assert place.call(strangers.reap, pid) == 0
                yield connection, leave
    os.unlink(name)


def test_a_connection_ends_with_its_process(node):
    """threats-and-faults.md T4: it was passed on to somebody else, us; while the connector lives it is the connector's."""
    one, = start(node, 'one')
    with Place(one.cgroup, one.netns.path) as place, handed_over(
            place, one.mount / 'socket', node.agentd.run) as (connection, leave):
        connection.sendall(PING)
        while b'12345678' not in connection.recv(4096):
            pass
        watched = sockets(one)['attested']['watched']
        leave()
        assert strangers.drain(connection) == b''
        with pytest.raises(OSError):
            for _ in range(10):  # what the kernel still takes nobody answers
                connection.sendall(PING)
        assert sockets(one)['attested']['watched'] == watched - 1
    assert one.is_served()


def test_a_restarted_agentd_learns_no_other_namespace(node):
    """The broker was killed: the first who comes is in the pod's cgroup and in a namespace of his own."""
    one, = start(node, 'one')
    other = Netns(f'{node.name}.other')
    try:
        node.agentd.kill()
        node.agentd.start()
        one.wait_served()
        with Place(one.cgroup, other.path) as place:
            assert place.call(strangers.refused, one.mount / 'socket') == 0
        assert refused_by(one) == {'netns': 1} and one.is_served()
        # The sandbox is made anew: nobody is left in the cgroup, then it comes from elsewhere.
        one.netns.remove()
        one.netns = Netns(one.netns.name)
        one.ip = node.network.plug(one.netns)
        wait_for('the pod in its new namespace', lambda: one.is_served())
        with Place(one.cgroup, other.path) as place:
            assert place.call(strangers.refused, one.mount / 'socket') == 0
    finally:
        other.remove()


@pytest.mark.parametrize('policy', ['prefer', 'require'])
def test_what_cannot_be_known_is_the_policys(node, policy):
    """No cgroup is named for the pod: flagged, or refused; a namespace that is known to be another's is refused."""
    node.agentd.settings.update(attest=policy)
    one, two = node.pod('one'), node.pod('two')
    (node.agentd.manifests / one.uid / 'cgroup').unlink()
    node.agentd.start()
    one.wait_served()
    two.wait_served()
    assert two.is_served() and sockets(two)['attested']['unproven'] == ''
    if policy == 'prefer':
        assert one.is_served()
        record = node.agentd.run / 'state/pod' / one.uid
        kept = record.stat().st_ino
        assert one.is_served() and record.stat().st_ino == kept  # it is asked about each time, and written once
        assert 'no <uid>/cgroup' in sockets(one)['attested']['unproven'] and not sockets(one)['attested']['cgroup_ids']
    else:
        with Place(one.cgroup, one.netns.path) as place:
            assert place.call(strangers.refused, one.mount / 'socket') == 0
        assert refused_by(one) == {'unproven': 1} and metric(node, 'unproven') == 1
    before = sockets(one)['refused']
    with Place(two.cgroup, two.netns.path) as place:
        assert place.call(strangers.refused, one.mount / 'socket') == 0
    assert sockets(one)['refused'] == before + 1
    # As soon as it is named, it is known.
    (node.agentd.manifests / one.uid / 'cgroup').write_text(one.cgroup.below_root() + '\n')
    assert one.is_served() and sockets(one)['attested']['unproven'] == ''


@pytest.mark.parametrize('how', ['copy', 'symlink'])
def test_another_pods_token_opens_nothing(node, how):
    """One's token file holds, or leads to, two's."""
    one, two = node.pod('one'), node.pod('two')
    file = node.agentd.manifests / one.uid / 'token'
    file.unlink()
    if how == 'copy':
        file.write_text(two.tokens[0] + '\n')
    else:
        file.symlink_to(f'../{two.uid}/token')
    node.agentd.start()
    one.wait_served()
    two.wait_served()
    assert two.is_served()

    def why():
        return next(p for p in node.agentd.ctl('pods')['pods'] if p['uid'] == one.uid)['token'].get('why_not')
    got = wait_for('the refusal', why)
    assert re.search('service account|pod uid' if how == 'copy' else 'symbolic|not a regular|symlink', got), got
    assert 'code' in one.call(clients.fetch_secrets, one.mount / 'socket', ['default'], 1)
    assert [r['identity'] for r in node.istiod.journal('csr')] == ['ns/demo/sa/two']


def test_names_are_never_paths(node):
    """What a manifest calls its pod, namespace or account names no file; only the uid does."""
    names = ['..', '../../x', '/etc/x', '%2e%2e', 'a/b', 'ä', 'x' * 253, 'x' * 254, 'a\nb', '.', '']
    good, before = node.pod('good'), sorted(p.name for p in node.dir.iterdir())
    uids = {good.uid}
    for name in names:
        for key in ('name', 'namespace', 'service_account'):
            uids.add(uid := str(uuid.uuid4()))
            (node.agentd.manifests / f'{uid}.yaml').write_text(yaml.safe_dump({
                'uid': uid, 'name': 'p', 'namespace': 'demo', 'service_account': 'p', **{key: name}}))
    node.agentd.start()
    good.wait_served()
    assert good.is_served()
    refused = {r['file'] for r in node.agentd.ctl('pods')['refused_manifests']}
    made = {p.name for p in (node.agentd.run / 'pods').iterdir()}
    assert made == uids - {f.removesuffix('.yaml') for f in refused} and len(refused) >= 3 * (len(names) - 1)
    for pod in made:
        assert {p.name for p in (node.agentd.run / 'pods' / pod).iterdir()} == {'mount'}
    assert sorted(p.name for p in node.dir.iterdir()) == sorted({*before, 'run'})
