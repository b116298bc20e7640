"""What a pod takes a whole broker, attestation included: a real agentd, pods one at a time, beside some and beside many."""
import os
import signal
import socket
import time

from tests.e2e.netns import inside

from .tools import Processes, row

EACH, BESIDE, GAP_S, QUIET_S = 10, (4, 60), 0.3, 1  # an audit comes 0.1 s after what calls for it


def speak(pod):
    """A process of the pod connects, as its Envoy does, and stays."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        (pod.cgroup.path / 'cgroup.procs').write_text('0')
        with inside(pod.netns.path), socket.socket(socket.AF_UNIX) as s:
            s.connect(str(pod.mount / 'socket'))
            os.write(writer, b'.')
            signal.pause()
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    return pid


def _cpu_ms(broker, pods, step):
    before = broker.cpu_s()
    for pod in pods:
        step(pod)
        time.sleep(GAP_S)
    for pod in pods:
        pod.wait_served()
    time.sleep(QUIET_S)
    return (broker.cpu_s() - before) / len(pods) * 1e3


def arrivals(node):
    broker, spoken, found, there = Processes([node.agentd.process.pid]), [], [], 4

    def more(n):
        nonlocal there
        pods = [node.pod(f'arrives{there + i}', manifest=False, above='mesh/', redirect={'mode': 'ebpf'}) for i in range(n)]
        for pod in pods:
            pod.write_token()
        there += n
        return pods
    try:
        for beside in BESIDE:
            crowd = more(beside - there)
            for pod in crowd:
                pod.write_manifest()
            spoken += [speak(pod.wait_served()) for pod in crowd]
            pods = more(EACH)
            time.sleep(QUIET_S)
            found.append((_cpu_ms(broker, pods, lambda p: p.write_manifest()),
                          _cpu_ms(broker, pods, lambda p: spoken.append(speak(p)))))
    finally:
        for pid in spoken:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    row("the whole broker's CPU for a pod, beside", *BESIDE)
    row('  until it is in force outbound, ms', *(f'{f[0]:.2f}' for f in found))
    row("  its Envoy's first word, ms", *(f'{f[1]:.2f}' for f in found))
    row('  both, ms', *(f'{sum(f):.2f}' for f in found))
