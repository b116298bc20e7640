"""The installed units under a real systemd: it keeps the sockets, it watches, it runs a pod's Envoy."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from . import mesh, sockets
from .conftest import measured
from .hammer import Hammer
from .machine import HERE, Machine, install
from .pod import ADMIN, LOG_FORMAT
from .run import TOP, Process, sh, wait_for
from .test_redirect import APP, ENVOY, Bystander, serve

KILLS = 20 if os.environ.get('AGENTD_SOAK') else 3
UNIT = 'agentd.service'
UNITS = (UNIT, 'agentd-state.service', 'agentd-gate.service', 'agentd-envoy@.service')


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
    """SIGKILL of both, a restart, an upgrade, silence; the connections wait in systemd's store."""
    node = make_node(mode='release')
    pod = pod_in(node)
    machine = Machine(node)
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
    machine.drop_in(UNIT, 'short', 'WatchdogSec=8s\n')  # from the restart on
    machine.systemctl('daemon-reload')
    machine.systemctl('restart', UNIT)
    worker = ready(machine, worker)
    hammer.more()
    main = machine.show(UNIT, 'MainPID')
    machine.systemctl('reload', UNIT)  # another agentd in the same process
    worker = ready(machine, worker)
    hammer.more()
    os.kill(machine.ours(UNIT, worker), signal.SIGSTOP)
    worker = ready(machine, worker)  # who does not answer is replaced ...
    assert machine.show(UNIT, 'MainPID') == main
    hammer.more()
    os.kill(machine.ours(UNIT, main[0]), signal.SIGSTOP)
    ready(machine, worker)  # ... and so is the broker, by systemd
    assert machine.show(UNIT, 'MainPID') != main
    hammer.more()
    counts = hammer.stop()
    assert counts['refused'] == counts['late'] == 0, counts
    assert len(node.istiod.issued()) == 1  # the state outlives the unit's own mount namespace
    machine.systemctl('stop', UNIT)
    assert 'not proven' not in node.agentd.log.read_text()  # the unit takes nothing away that is needed
    assert machine.show(UNIT, 'Result', 'NFileDescriptorStore') == ['success', '0']
    measured.append(f'{counts["ok"]} connections, {counts["reset"]} reset by a death')


def connect(machine, pod, *who):
    """What becomes of a connection from the pod's network namespace, but not from its unit."""
    shutil.copy(HERE / 'hammer.py', pod.dir)  # ours may be in a home, where nobody else reads
    code = f'import sys; sys.path.insert(0, "{pod.dir}"); import hammer; print(*hammer._once("{pod.mount}/socket"))'
    return sh('/bin/sh', '-c', 'echo 0 >"$0" && exec "$@"', pod.cgroup.path / 'cgroup.procs',
              *machine.inside(*pod.netns.command(*who, sys.executable, '-c', code)))


def test_an_envoy_on_bare_metal(make_node):
    """Others of the node do not reach its socket, not even as its user or in its network namespace.
    Its threads, its drain and how it writes files are those of the manifest."""
    node = make_node(mode='release')
    pod = pod_in(node)
    pod.write_manifest(env={
        'PROXY_CONFIG': '{concurrency: 1, drainDuration: 1m2s, terminationDrainDuration: 1s, fileFlushInterval: 1.25s}'})
    unit = f'agentd-envoy@{pod.uid}.service'
    (node.agentd.manifests / pod.uid / 'cgroup').write_text(f'agentd.slice/{unit}\n')
    node.istiod.set(pod.id, **mesh.server([pod]))
    machine = Machine(node, {pod.uid: pod.netns})
    machine.systemctl('daemon-reload')
    machine.systemctl('start', unit)  # and agentd with it; it returns when Envoy is ready
    assert machine.systemctl('is-active', UNIT, unit).split() == ['active', 'active']
    wait_for('the listener', lambda: 'inbound::' in pod.netns.http(ADMIN, '/listeners')[1])
    main = machine.show(unit, 'MainPID')
    envoy = Path(f'/proc/{machine.ours(unit, main[0])}')
    assert envoy.stat().st_uid == 1337
    argv = (envoy / 'cmdline').read_text().split('\0')
    assert argv[argv.index('--log-format') + 1] == LOG_FORMAT
    assert argv[-7:-1] == [
        '--file-flush-interval-msec', '1250', '--drain-time-s', '62', '--concurrency', '1']
    assert 'Permission denied' in connect(machine, pod, 'setpriv', '--reuid=1337', '--regid=1337', '--clear-groups')
    assert connect(machine, pod).startswith('reset')
    os.kill(machine.ours(unit, main[0]), signal.SIGKILL)
    wait_for('another Envoy', lambda: machine.show(unit, 'MainPID') not in (main, ['0']))
    machine.wait_active(unit)
    machine.systemctl('stop', unit)
    assert machine.show(unit, 'Result', 'ExecMainStatus') == ['success', '0']
    log = (node.dir / f'envoy-{pod.uid}.log').read_text()
    assert 'not drained' not in log and 'agentd-envoy: drained' in log



# --- redirection ---


def test_redirection_goes_on(make_node):
    """By the unit as it is: SIGKILL of both, a restart, an upgrade, an end; nothing is ever plain text."""
    node = make_node(mode='release')
    pod = node.pod('server', redirect={'mode': 'ebpf'})
    peer = Bystander(node)
    node.pods.append(peer)
    machine = Machine(node, redirect=True)
    machine.systemctl('start', UNIT)
    worker = ready(machine)
    pod.wait_served()
    serve(pod, APP, 8080)
    serve(pod, ENVOY, 15001, 15006)
    assert peer.call(sockets.dropped, pod.ip, 8080)
    hammer = Hammer(pod, prefix=machine.inside())  # its first word makes the pod live
    stop = pod.dir / 'stop'

    def redirected():
        assert pod.call(sockets.dial, peer.ip, 80, APP, APP)['original'] == f'{peer.ip}:80'
        assert peer.call(sockets.dial, pod.ip, 8080)['original'] == f'{pod.ip}:8080'
    wait_for('the first word of its Envoy', lambda: not peer.call(sockets.dropped, pod.ip, 8080))
    redirected()
    host = Process(peer.netns.command(sys.executable, '-c', PROBE, pod.ip, stop), node.dir / 'probe.log', peer.cgroup)
    machine.systemctl('kill', '--signal=KILL', UNIT)
    worker = ready(machine, worker)
    hammer.more()
    redirected()
    machine.systemctl('restart', UNIT)
    worker = ready(machine, worker)
    hammer.more()
    redirected()
    machine.systemctl('reload', UNIT)
    ready(machine, worker)
    hammer.more()
    redirected()
    counts = hammer.stop()
    assert counts['refused'] == counts['late'] == 0, counts
    machine.systemctl('stop', UNIT)
    redirected()
    stop.touch()
    assert host.wait(60) == 0
    counts = json.loads(host.tail(1))
    assert list(counts['answered']) == ['15006'] and counts['dialled'] > 100, counts
    log = node.agentd.log.read_text()
    # Of two that are killed at once the worker may be the later one, and sees it.
    wrong = [line for line in log.splitlines() if 'level=error' in line and 'the broker went away' not in line]
    assert not wrong and 'level=warn msg="redirection' not in log, log
    measured.append(f'{counts["dialled"]} connections of a redirected pod while agentd came and went')


PROBE = '''
import json, sys
from tests.e2e import dialers
print(json.dumps(dialers.probe(sys.argv[1], 8080, sys.argv[2], 0.001)))
'''


# --- the files ---


def analyze(*args):
    r = subprocess.run(['systemd-analyze', *args], text=True, capture_output=True, check=False)
    assert r.returncode == 0, r.stdout[-300:] + r.stderr
    return r.stderr


def test_the_units_are_sound(tmp_path):
    for prefix in ('/usr/local', '/usr'):
        dest = tmp_path / prefix.replace('/', '')
        install(dest, prefix=prefix)
        units = [dest / prefix[1:] / 'lib/systemd/system' / u for u in UNITS]
        for unit in units:
            for path in re.findall(r'/usr\S*/(?:sbin|libexec)/agentd\S*', unit.read_text()):
                assert path.startswith(prefix) and os.access(f'{dest}{path}', os.X_OK), path
        analyze('security', '--offline=true', '--threshold=35', '--no-pager', units[0])
    # With paths that are there, systemd finds nothing to say of them.
    envoy = dest / 'usr/bin/envoy'
    shutil.copy('/bin/true', envoy)
    for unit in units:
        text = re.sub(r'/usr/(sbin|libexec)/agentd', rf'{dest}/usr/\1/agentd', unit.read_text())
        unit.write_text(text.replace('/usr/local/bin/envoy', str(envoy)))
    names = [u.with_name(u.name.replace('@', '@x')) for u in units]
    assert analyze('verify', '--man=no', '--recursive-errors=no', *names) == ''


def test_the_unit_grants_what_the_broker_keeps():
    header = (TOP / 'agentd/broker/base/caps.h').read_text()
    kept = set(re.findall(r'CAP_\w+', re.search(r'#define BROKER_CAPS(.*?)\n\n', header, re.S)[1]))
    unit = (TOP / 'systemd/agentd.service').read_text()
    assert set(re.search(r'^CapabilityBoundingSet=(.*)$', unit, re.M)[1].split()) == kept
