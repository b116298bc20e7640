"""What a pod's own Envoy pays for the status port: beside the app asked directly, alternately, in one run.

    [ROUNDS=N] make bench-pod, or python3 -m tests.bench.pod

The app is Python (tests/e2e/probed.py) and so is the client, for both ways.  pilot-agent's part is its own status server, built by
`make test-pod`, beside the same Envoy.  Nothing passes or fails here.
"""
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

from tests.e2e import mesh, probed
from tests.e2e import run as e2e
from tests.e2e.node import Node
from tests.e2e.run import Process, wait_for

from .table import attempt, machine
from .tools import Processes, row

ROUNDS, PROBES, MB, PODS = int(os.environ.get('ROUNDS', '7')), 200, 14, 250
AGENT, ISTIOS, APP = 15020, 15920, probed.HTTP
PACE_S = 0.06  # 20 scrapes a second are answered
STATUS = e2e.TOP / 'build/real/status/status'
PROBER = '/app-health/app/livez'
WITH = {'ISTIO_KUBE_APP_PROBERS': json.dumps({PROBER: {'httpGet': {'path': '/ok', 'port': APP}, 'timeoutSeconds': 1}}),
        'ISTIO_PROMETHEUS_ANNOTATIONS': json.dumps({'port': str(APP), 'path': '/current'})}
WITHOUT = {'PROXY_CONFIG': 'statusPort: 0', 'ENVOY_STATUS_PORT': '15021'}


class Envoy:
    """Of one pod: what the kernel knows of its process."""

    def __init__(self, pod):
        children = Path(f'/proc/{pod.envoy.pid}/task/{pod.envoy.pid}/children').read_text().split()
        self.pid = int(children[0] if children else pod.envoy.pid)
        self.proc = Path(f'/proc/{self.pid}')

    def _kb(self, file, field):
        return int(re.search(rf'^{field}:\s+(\d+)', (self.proc / file).read_text(), re.M)[1])

    def private_mib(self):
        return self._kb('smaps_rollup', 'Private_Dirty') / 1024

    def rss_mib(self):
        return self._kb('status', 'VmRSS') / 1024

    def peak_mib(self):
        return self._kb('status', 'VmHWM') / 1024

    def forget_peak(self):
        (self.proc / 'clear_refs').write_text('5')

    def cpu_ms(self):
        return Processes([self.pid]).cpu_s() * 1000


def start(node, name, **env):
    pod = node.pod(name, env=env)
    node.istiod.set(pod.id, **mesh.PLAIN_SERVER)
    pod.app = Process(pod.netns.command(sys.executable, '-m', 'tests.e2e.probed', pod.dir), pod.dir / 'app.log', pod.cgroup)
    pod.start_envoy().wait_ready()
    wait_for('the app', lambda: pod.netns.http(APP, '/text')[0] == 200)
    return pod


def timed(pod, port, path):
    began = time.monotonic()
    status, body = pod.netns.http(port, path, timeout=120)
    if status != 200:
        raise RuntimeError(f'{path}: {status} {body[:200]}')
    return (time.monotonic() - began) * 1000, len(body)


def spread(values):
    return f'{statistics.median(values):.2f}', f'{min(values):.2f}..{max(values):.2f}'


def scrapes(pod):
    pod.netns.http(APP, f'/use?/big?mb={MB}')
    envoy, ratios, times = Envoy(pod), [], []
    timed(pod, AGENT, '/metrics')
    before = envoy.rss_mib()
    envoy.forget_peak()
    for _ in range(ROUNDS):
        direct, _ = timed(pod, APP, '/current')
        merged, size = timed(pod, AGENT, '/metrics')
        ratios.append(merged / direct)
        times.append(merged)
    row(f'scrape of {size / 2**20:.1f} MiB: ms', *spread(times))
    row('    time / the app asked directly', *spread(ratios), '<= 1.3')
    row('    Envoy grows by MiB, at most', f'{envoy.peak_mib() - before:.1f}', '', '<= 8')


def probes(pod):
    envoy, through, direct = Envoy(pod), [], []
    before = envoy.cpu_ms()
    for _ in range(PROBES):
        through.append(timed(pod, AGENT, PROBER)[0])
        direct.append(timed(pod, APP, '/ok')[0])
    row('rewritten probe: ms', *spread(through))
    row('    the app asked directly', *spread(direct))
    row("    Envoy's CPU: ms a probe", f'{(envoy.cpu_ms() - before) / PROBES:.2f}', '', "pilot-agent's 0.5")


def pilot_agents(pod):
    """Its own status server in the same pod, asked for the same."""
    if not STATUS.exists():
        raise RuntimeError('no build/real/status: make test-pod builds it')
    process = Process(pod.netns.command('env', f'ISTIO_PROMETHEUS_ANNOTATIONS={WITH["ISTIO_PROMETHEUS_ANNOTATIONS"]}', 'GOMAXPROCS=2', STATUS,
                                        'serve', ISTIOS, pod.ip, WITH['ISTIO_KUBE_APP_PROBERS']), pod.dir / 'status.log', pod.cgroup)
    wait_for("pilot-agent's server", lambda: pod.netns.http(ISTIOS, '/healthz/ready')[0] == 200)
    return process


def beside_pilot_agent(pod):
    """CPU of all that answers; Envoy is in both ways."""
    istios = pilot_agents(pod)
    processes = Processes([Envoy(pod).pid, istios.pid])

    def cost(port, path, times):
        began = processes.cpu_s()
        for _ in range(times):
            timed(pod, port, path)
            time.sleep(PACE_S)
        return (processes.cpu_s() - began) * 1000 / times
    for what, path, times, app_page, goal in (
            (f'scrape of {MB} MiB', '/metrics', 1, f'/big?mb={MB}', '<= 0.9'), ("scrape of Envoy's own metrics", '/metrics', 10, '/big?mb=0', '<= 0.9'),
            ('rewritten probe, now and then', PROBER, PROBES // 4, '/text', '')):
        pod.netns.http(APP, f'/use?{app_page}')
        timed(pod, ISTIOS, path), timed(pod, AGENT, path)
        pairs = [(cost(AGENT, path, times), cost(ISTIOS, path, times)) for _ in range(ROUNDS)]
        ours, theirs = zip(*pairs)
        row(f"{what}: Envoy's CPU ms", *spread(ours))
        row("    pilot-agent's and Envoy's", *spread(theirs))
        row('    ratio', *spread([a / b for a, b in pairs]), goal)
    istios.kill()


def holds(made, env):
    """Descriptors and private KiB of broker and worker that serve so many pods."""
    node = Node(*made, mode='release')
    try:
        node.agentd.start()
        for i in range(PODS):
            node.pod(f'p{i}', env=env)
        for pod in node.pods:
            pod.wait_served()
        processes = Processes(node.agentd.cgroup.pids())
        return sum(len(list(Path(f'/proc/{pid}/fd').iterdir())) for pid in processes.pids), processes.memory_kib('Private_Dirty')
    finally:
        node.remove()


def agentds(made):
    """What the status port is for agentd: bytes that it wrote into a file."""
    (fds, kib), (fds_less, kib_less) = (holds(made, env) for env in (WITH, WITHOUT))
    row(f'agentd, {PODS} pods: descriptors with, without', fds, fds_less, f'{(fds - fds_less) / PODS:+.2f} a pod; 0')
    row('    KiB with, without', kib, kib_less, f'{(kib - kib_less) / PODS:+.1f} a pod; <= 4')


def memory(pods):
    with_, without = (statistics.median(Envoy(p).private_mib() for p in kind) for kind in pods)
    row("Envoy's private memory: MiB with, without", f'{with_:.1f}', f'{without:.1f}', f'{with_ - without:+.1f}; <= +2')


def main():
    load_before, begun = os.getloadavg()[0], time.monotonic()
    with e2e.run() as made:
        node = Node(*made, mode='release')
        try:
            node.agentd.start()
            pods = [[start(node, f'{name}-{i}', **env) for i in range(3)] for name, env in (('with', WITH), ('without', WITHOUT))]
            for pod in pods[0]:
                timed(pod, AGENT, PROBER)
            memory(pods)
            probes(pods[0][0])
            scrapes(pods[0][0])
            attempt('beside pilot-agent', beside_pilot_agent, pods[0][0])
        finally:
            node.remove()
        attempt('agentd', agentds, made)
    machine(load_before, begun)


if __name__ == '__main__':
    main()
