"""Strict pods on a machine with systemd: nothing of theirs is ever plain text, whatever is not there yet."""
import json
import shutil
import sys
from types import SimpleNamespace

import pytest

from .machine import HERE, Machine
from .run import sh, wait_for
from .test_redirect import APP, ENVOY, Bystander, serve
from .test_redirect_life import Probe

SLICE = 'web.slice'
PROGRAM = '''
import json, os, sockets, sys
with open(os.path.dirname(__file__) + '/dialled', 'w') as f:
    json.dump(sockets.dial(sys.argv[1], 80), f)
sockets.serve(int(sys.argv[2]), ['8080'])
'''
AGENTD, GATE, UNIT = 'agentd.service', 'agentd-gate.service', 'web.service'


class Strict:
    """A pod whose app is a unit in a slice of its own, and a host beside it that dials it all the time."""

    def __init__(self, make_node, allow):
        self.node = make_node(mode='release')
        self.pod = self.node.pod('server', redirect={'mode': 'ebpf'})
        self.beside = self.node.agentd.manifests / self.pod.uid
        (self.beside / 'cgroup').write_text(f'{self.node.cgroup_name}/{SLICE}\n')
        (self.beside / 'redirect-allow').write_text(f'{allow}\n')
        self.peer = Bystander(self.node)
        self.node.pods.append(self.peer)
        serve(self.peer, 0, 80)
        shutil.copy(HERE / 'sockets.py', self.pod.dir)  # ours may be where nobody else reads
        (self.pod.dir / 'app.py').write_text(PROGRAM)
        self.probe = Probe(self.pod, self.peer)

    def app(self):
        """Its unit: it dials as soon as it is there, and then listens."""
        return (f'[Service]\nSlice={SLICE}\nNetworkNamespacePath=/run/netns/{self.pod.uid}\n'
                f'ExecStart=/usr/bin/python3 {self.pod.dir}/app.py {self.peer.ip} {APP}\n'
                f'StandardOutput=append:{self.pod.dir}/app.log\nStandardError=inherit\n')

    def machine(self, **kw):
        return Machine(self.node, {self.pod.uid: self.pod.netns}, redirect=True, **kw)

    def wait_for_app(self):
        log = self.pod.dir / 'app.log'
        wait_for('the app to listen', lambda: log.exists() and 'serving' in log.read_text())
        return json.loads((self.pod.dir / 'dialled').read_text())

    def begin_envoy(self, machine):
        """Sockets of an Envoy, and its first word; it may be said by any process of the pod's."""
        cgroup = SimpleNamespace(path=self.node._cgroup.path / SLICE)
        serve(SimpleNamespace(netns=self.pod.netns, cgroup=cgroup, dir=self.pod.dir), ENVOY, 15001, 15006)
        code = f'import sys; sys.path.insert(0, "{HERE}"); import hammer; print(*hammer._once("{self.pod.mount}/socket"))'
        sh('/bin/sh', '-c', 'echo 0 >"$0" && exec "$@"', cgroup.path / 'cgroup.procs',
           *machine.inside(*self.pod.netns.command(sys.executable, '-c', code)))
        wait_for('the pod to be live', lambda: self.node.agentd.ctl('redirect')['redirect'][0]['inbound'])

    def answered(self):
        counts = self.probe.end()
        assert counts['dialled'] > 300
        return counts['answered']


@pytest.fixture
def strict(make_node):
    made = []

    def make(allow):
        made.append(Strict(make_node, allow))
        return made[-1]
    yield make
    for s in made:
        s.probe.end()


def order(machine, *units):
    """When they became active, in the order in which they are named."""
    return [int(machine.show(u, 'ActiveEnterTimestampMonotonic')[0]) for u in units]


def test_a_boot_without_agentd(strict):
    """No agentd, no istiod, no drop-in: the gate alone, which is there before any unit of a pod."""
    s = strict('strict')
    machine = s.machine(boot={UNIT: s.app()})
    assert s.wait_for_app() == 'ConnectionRefusedError'  # nor does it get out
    gate, app = order(machine, GATE, UNIT)
    assert 0 < gate < app
    s.probe.more()
    machine.systemctl('start', AGENTD)
    s.pod.wait_served()
    s.begin_envoy(machine)
    s.probe.more()
    s.probe.answered(15006)
    answered = s.answered()
    assert list(answered) == [15006], answered


def test_an_app_waits_for_its_rules(strict):
    """The drop-in: the manifest came while agentd was away, and nothing says that the pod is strict but its manifest."""
    s = strict('permissive,exclusions')
    machine = s.machine()
    machine.unit(UNIT, s.app())
    machine.drop_in_of_app(UNIT, s.pod.uid)
    machine.drop_in(AGENTD, 'dead', 'ExecStartPre=/bin/false\nRestart=no\n')
    machine.systemctl('daemon-reload')
    machine.systemctl('start', '--no-block', UNIT)
    wait_for('the wait', lambda: machine.show(UNIT, 'ActiveState', 'SubState') == ['activating', 'start-pre'])
    s.probe.more()
    assert machine.show(UNIT, 'SubState') == ['start-pre'] and not (s.pod.dir / 'dialled').exists()
    machine.drop_in(AGENTD, 'dead', '')
    machine.systemctl('daemon-reload')
    machine.systemctl('start', AGENTD)
    machine.wait_active(UNIT)
    assert s.wait_for_app() == 'ConnectionRefusedError'  # its Envoy is not there yet
    s.probe.more()
    assert not s.answered()
