"""The installed units under a real systemd: it keeps the sockets, it watches, it runs a pod's Envoy."""
import os
import re
import signal
import subprocess

from . import mesh
from .conftest import measured
from .hammer import Hammer
from .machine import Machine, install
from .pod import ADMIN
from .run import TOP, wait_for

KILLS = 20 if os.environ.get('AGENTD_SOAK') else 3
UNIT = 'agentd.service'
UNITS = (UNIT, 'agentd-state.service', 'agentd-envoy@.service')


def pod_in(node, cgroup=None):
    """A pod; the machine's cgroup root is the node's directory of cgroups."""
    pod = node.pod('server')
    (node.agentd.manifests / pod.uid / 'cgroup').write_text((cgroup or pod.id) + '\n')
    return pod


def ready(machine, before=None):
    """The worker as agentd names it to systemd, another one than `before`."""
    def told():
        state, text = machine.show(UNIT, 'ActiveState', 'StatusText')
        found = re.fullmatch(r'1 pods, worker (\d+)', text)
        return state == 'active' and found and found[1] != before and found[1]
    return wait_for('agentd to be ready', told)


def test_nothing_is_refused_while_agentd_dies(make_node):
    """T36, T37: SIGKILL of both, a restart, an upgrade, silence; the connections wait in systemd's store."""
    node = make_node(mode='release')
    pod = pod_in(node)
    machine = Machine(node)
    machine.drop_in(UNIT, 'short', 'WatchdogSec=4s\n')
    machine.systemctl('daemon-reload')
    machine.systemctl('start', UNIT)
    worker = ready(machine)
    pod.wait_served()
    assert int(machine.show(UNIT, 'NFileDescriptorStore')[0]) >= 3  # admin, and the pod's two
    hammer = Hammer(pod, prefix=machine.inside())
    for _ in range(KILLS):
        machine.systemctl('kill', '--signal=KILL', UNIT)
        worker = ready(machine, worker)
        hammer.more()
    assert machine.show(UNIT, 'NRestarts') == [str(KILLS)]
    machine.systemctl('restart', UNIT)
    worker = ready(machine, worker)
    hammer.more()
    main = machine.show(UNIT, 'MainPID')
    machine.systemctl('reload', UNIT)  # another agentd in the same process
    worker = ready(machine, worker)
    hammer.more()
    os.kill(machine.pids(UNIT)[-1], signal.SIGSTOP)
    worker = ready(machine, worker)  # who does not answer is replaced ...
    assert machine.show(UNIT, 'MainPID') == main
    hammer.more()
    os.kill(machine.pids(UNIT)[0], signal.SIGSTOP)
    ready(machine, worker)  # ... and so is the broker, by systemd
    assert machine.show(UNIT, 'MainPID') != main
    hammer.more()
    counts = hammer.stop()
    assert counts['refused'] == counts['late'] == 0, counts
    assert len(node.istiod.issued()) == 1  # the state outlives the unit's own mount namespace
    machine.systemctl('stop', UNIT)
    assert machine.show(UNIT, 'Result', 'NFileDescriptorStore') == ['success', '0']
    measured.append(f'{counts["ok"]} connections, {counts["reset"]} reset by a death')


def test_an_envoy_on_bare_metal(make_node):
    node = make_node(mode='release')
    pod = pod_in(node)
    unit = f'agentd-envoy@{pod.uid}.service'
    (node.agentd.manifests / pod.uid / 'cgroup').write_text(f'agentd.slice/{unit}\n')
    node.istiod.set(pod.id, **mesh.server([pod]))
    machine = Machine(node, {pod.uid: pod.netns})
    machine.drop_in('agentd-envoy@.service', 'short', 'Environment=DRAIN_SECONDS=1\n')
    machine.systemctl('daemon-reload')
    machine.systemctl('start', unit)  # and agentd with it; it returns when Envoy is ready
    assert machine.systemctl('is-active', UNIT, unit).split() == ['active', 'active']
    wait_for('the listener', lambda: 'inbound::' in pod.netns.http(ADMIN, '/listeners')[1])
    main = machine.pids(unit)[0]
    assert os.stat(f'/proc/{main}').st_uid == 1337
    os.kill(main, signal.SIGKILL)
    wait_for('another Envoy', lambda: machine.pids(unit) and machine.pids(unit)[0] != main)
    machine.wait_active(unit)
    machine.systemctl('stop', unit)
    assert machine.show(unit, 'Result', 'ExecMainStatus') == ['success', '0']
    log = (node.dir / f'envoy-{pod.uid}.log').read_text()
    assert 'not drained' not in log and 'agentd-envoy: drained' in log


# --- the files ---


def test_the_units_are_sound(tmp_path):
    for prefix in ('/usr/local', '/usr'):
        dest = tmp_path / prefix.replace('/', '')
        install(dest, prefix=prefix)
        units = [dest / prefix[1:] / 'lib/systemd/system' / u for u in UNITS]
        for unit in units:
            for path in re.findall(r'/usr\S*/(?:sbin|libexec)/agentd\S*', unit.read_text()):
                assert path.startswith(prefix) and os.access(f'{dest}{path}', os.X_OK), path
        r = subprocess.run(['systemd-analyze', 'security', '--offline=true', '--threshold=35', '--no-pager', units[0]],
                           text=True, capture_output=True, check=False)
        assert r.returncode == 0, r.stdout[-300:]


def test_the_unit_grants_what_the_broker_keeps():
    header = (TOP / 'agentd/priv/broker_caps.h').read_text()
    kept = set(re.findall(r'CAP_\w+', re.search(r'#define BROKER_CAPS(.*?)\n\n', header, re.S)[1]))
    unit = (TOP / 'systemd/agentd.service').read_text()
    assert set(re.search(r'^CapabilityBoundingSet=(.*)$', unit, re.M)[1].split()) == kept
