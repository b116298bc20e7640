"""Files that run at the same time share no address and no port; who gets to a foreign control plane all the same is found."""
import contextlib
import os
from types import SimpleNamespace

import pytest

from . import clients, netns
from .conftest import FIRST_NETNS, check
from .run import RUN, TOP, sh, wait_for
from .strangers import Place


def serials(node, pod):
    """Of what the control plane has issued, once the pod has its certificate."""
    assert pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])['default']['chain']
    return {record['serial'] for record in node.istiod.issued()}


def links():
    return [line.split()[1] for line in sh('ip', '-o', 'link').splitlines()]


def test_this_file_has_a_network_of_its_own():
    assert os.readlink('/proc/self/ns/net') != os.readlink(f'/proc/{os.getppid()}/ns/net')
    assert links() == ['lo:']


def test_a_network_leaves_nothing_for_the_next_test():
    network = netns.Network(f'{RUN}.cable')
    network.plug_node('10.77.200.1/16')
    assert len(links()) == 2
    network.remove()
    assert links() == ['lo:']


def test_a_process_is_where_its_caller_is(node):
    """Also when the first one, and with it the server that forks them all, was started in another namespace."""
    for name, where in (('one', contextlib.nullcontext), ('two', netns.own)):
        with where(), Place(node.cgroup(name)) as place:
            assert place.call(os.readlink, '/proc/self/ns/net') == os.readlink('/proc/thread-self/ns/net')


def test_who_has_none_is_there():
    assert FIRST_NETNS.keys() <= {file.stem for file in (TOP / 'tests').rglob('test_*.py')}


def test_two_control_planes_on_one_port(make_node):
    """In two namespaces.  While the one is away its agentd finds nobody, though the other one listens at that address."""
    here, there = make_node(), make_node()
    there.istiod.process.stop()
    there.istiod.address = there.agentd.plane['address'] = here.istiod.address
    here.agentd.start()
    with netns.own():
        there.istiod.start()
        there.agentd.start()
    there.agentd.netns = SimpleNamespace(inside=lambda: netns.inside(f'/proc/{there.agentd.process.pid}/ns/net'))
    pods = [node.pod('one').wait_served() for node in (here, there)]
    assert here.istiod.address == there.istiod.address
    assert not serials(here, pods[0]) & serials(there, pods[1])
    there.istiod.order('listen', on='nothing')
    there.pod('two')  # needs a certificate of its own
    wait_for('its agentd to find nobody', lambda: 'refused' in there.agentd.ctl_text('status')[1])
    assert here.agentd.ctl_text('status')[0] == 0 and not here.istiod.strangers()
    assert len(here.istiod.journal('csr-asked')) == 1


def test_who_dials_a_foreign_control_plane_is_found(make_node):
    """Its test's, and not only by whom it disturbs: the file that has that control plane fails."""
    one, stray = make_node(), make_node()
    stray.agentd.plane['address'] = one.istiod.address
    stray.pod('one')
    stray.agentd.start()
    wait_for('its hello', one.istiod.strangers)
    stray.agentd.stop()
    one.istiod.process.stop()  # it says no more
    assert one.istiod.strangers() == {stray.istiod.server_name} and not stray.istiod.strangers()
    with pytest.raises(AssertionError, match=stray.istiod.server_name):
        check(one)
    os.truncate(one.istiod.dir / 'log', 0)  # this one was wanted
