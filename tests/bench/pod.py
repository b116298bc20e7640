"""What a pod's own Envoy pays for the status port: beside the app asked directly, alternately, in one run.

    [ROUNDS=N] make bench-pod, or python3 -m tests.bench.pod

The app is Python (tests/e2e/probed.py) and so is the client, for both ways.  Nothing passes or fails here.
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

from .table import machine
from .tools import row

ROUNDS, PROBES, MB = int(os.environ.get('ROUNDS', '7')), 200, 14
AGENT, APP = 15020, probed.HTTP
PROBER = '/app-health/app/livez'
TICK_MS = 1000 / os.sysconf('SC_CLK_TCK')


class Envoy:
    """Of one pod: what the kernel knows of its process."""

    def __init__(self, pod):
        children = Path(f'/proc/{pod.envoy.pid}/task/{pod.envoy.pid}/children').read_text().split()
        self.proc = Path(f'/proc/{children[0] if children else pod.envoy.pid}')

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
        fields = (self.proc / 'stat').read_text().rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_MS


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


def memory(pods):
    with_, without = (statistics.median(Envoy(p).private_mib() for p in kind) for kind in pods)
    row("Envoy's private memory: MiB with, without", f'{with_:.1f}', f'{without:.1f}', f'{with_ - without:+.1f}; <= +2')


def main():
    load_before, begun = os.getloadavg()[0], time.monotonic()
    prober = {'ISTIO_KUBE_APP_PROBERS': json.dumps({PROBER: {'httpGet': {'path': '/ok', 'port': APP}, 'timeoutSeconds': 1}}),
              'ISTIO_PROMETHEUS_ANNOTATIONS': json.dumps({'port': str(APP), 'path': '/current'})}
    with e2e.run() as made:
        node = Node(*made, mode='release')
        try:
            node.agentd.start()
            pods = [[start(node, f'{name}-{i}', **env) for i in range(3)]
                    for name, env in (('with', prober), ('without', {'PROXY_CONFIG': 'statusPort: 0', 'ENVOY_STATUS_PORT': '15021'}))]
            for pod in pods[0]:
                timed(pod, AGENT, PROBER)
            memory(pods)
            probes(pods[0][0])
            scrapes(pods[0][0])
        finally:
            node.remove()
    machine(load_before, begun)


if __name__ == '__main__':
    main()
