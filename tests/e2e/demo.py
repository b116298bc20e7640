"""What `make run` shows: `agentctl inject` makes three pods, a kubelet starts them, agentd gives their Envoys certificates and configuration.

    app of client -> Envoy -> mTLS -> Envoy -> app of server

The apps know nothing of it: the client dials the server's address, eBPF brings what they say to the Envoys.  Two pods
have one account, and one certificate; agentd is killed while they talk.
"""
import os
import shlex
import signal
import sys
import time
from pathlib import Path

import yaml

from . import clients, mesh, run
from .csi import CsiNode
from .injected import InjectedPod
from .node import MODE

_started = time.monotonic()


def say(text):
    print(f'{time.monotonic() - _started:6.1f} s  {text}', flush=True)


def show(agentd, *command):
    """An agentctl command as one would type it, and what it prints."""
    _, text = agentd.ctl_text(*command)
    print(f'\n$ agentctl {" ".join(command)}\n{text.rstrip()}', flush=True)


def manifest(name, account):
    """A pod as its owner writes it."""
    return {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': name, 'namespace': 'demo', 'labels': {'app': name}},
            'spec': {'serviceAccountName': account, 'containers': [{'name': 'app', 'image': f'example/{name}'}]}}


def inject(node):
    """The pods that agentctl makes of what their owners wrote."""
    before, config, after = (node.dir / name for name in ('pods.yaml', 'config.yaml', 'injected.yaml'))
    before.write_text(yaml.safe_dump_all(manifest(*p) for p in (('server', 'server-sa'), ('client', 'client-sa'), ('twin', 'client-sa'))))
    address = node.istiod.address
    config.write_text(yaml.safe_dump({'values': {'global': {'hub': 'docker.io/istio', 'tag': '1.29.1', 'caAddress': address}},
                                      'meshConfig': {'defaultConfig': {'discoveryAddress': address}}}))
    given = ['-f', str(before), '--config', str(config)]
    status, said = node.agentd.ctl_text('inject', *given, '-o', str(after))
    if status:
        raise RuntimeError(f'agentctl inject: {said}')
    say(f'agentctl inject: {before.stat().st_size} bytes of manifests became {after.stat().st_size}')
    show(node.agentd, 'inject', '--check', *given)
    print()
    return [InjectedPod(node, p['metadata']['name'], p) for p in yaml.safe_load_all(after.read_text())]


def start(node):
    say(f'control plane: 127.0.0.1:{node.istiod.address.rpartition(":")[2]} (CA, ADS, token check)')
    node.agentd.settings['node_name'] = 'demo-node'
    node.capture()
    node.start()
    say(f'agentd: broker {node.agentd.process.pid} as root, worker {node.agentd.worker_pid()} unprivileged; a kubelet knows it')
    server, client, twin = inject(node)
    for pod in (server, client, twin):
        pod.sandbox()
    for pod in (client, twin):
        node.istiod.set(pod.id, **mesh.captured_client(server))
    node.istiod.set(server.id, **mesh.captured_server([client]))
    server.start_app(mesh.APP, '0.0.0.0')
    for pod in (server, client, twin):
        pod.start_envoy()
        say(f'pod {pod.label}: service account {pod.sa}, {pod.ip}, its volume by CSI, Envoy {pod.envoy.pid}')
    for pod in (server, client, twin):
        pod.wait_ready()
    say(f'{len(node.pods)} pods, {len({pod.sa for pod in node.pods})} service accounts: {len(node.istiod.issued())} certificates were asked for')
    return client, server


def send(client, server, requests=20):
    """Requests by the server's address, as any program makes them; the last answer."""
    url = f'http://{server.ip}:{mesh.APP}/hello'

    def ask():
        status, answer = client.call(clients.get_json, url)
        return status == 200 and answer
    answer = run.wait_for('the first answer', ask)
    say(f'first request answered: {url}')
    for _ in range(requests):
        answer = ask()
    expected = f'URI={mesh.spiffe(client.ns, client.sa)}'
    if not answer or expected not in answer['xfcc']:
        raise RuntimeError(f'{server.label} saw {answer!r} instead of {expected}')
    say(f'{requests} more requests answered')
    return answer


def memory_mib(pid):
    """What would be free without it (PSS)."""
    lines = Path(f'/proc/{pid}/smaps_rollup').read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith('Pss:')) / 1024


def show_memory(node):
    worker = node.agentd.worker_pid()
    say(f'memory: broker {memory_mib(node.agentd.process.pid):.0f} MiB, worker {memory_mib(worker):.0f} MiB for {len(node.pods)} pods '
        '(the pilot-agents of 50 pods: 530 MiB, docs/PERFORMANCE.md)')


def kill_under_load(node, client, server):
    """The worker, then all of agentd, while requests go on; no app notices."""
    load = client.load(mesh.APP, server.ip)
    load.more(20)
    worker = node.agentd.worker_pid()
    os.kill(worker, signal.SIGKILL)
    run.wait_for('another worker', lambda: node.agentd.worker_pid() != worker)
    load.more(50)
    say('the worker was killed, the broker started another one')
    node.agentd.kill()
    load.more(50)
    node.agentd.start()
    load.more(50)
    counts = load.stop()
    say(f'agentd was killed, stayed away, was started again: {counts["ok"]} requests answered meanwhile, {counts["failed"]} failed')
    if counts['failed']:
        raise RuntimeError(f'{counts["failed"]} requests failed')


def print_keep(node, client, server):
    """Commands that can be pasted: a process is of a pod by its cgroup and its network namespace."""
    ask = f'import urllib.request as u; print(u.urlopen("http://{server.ip}:{mesh.APP}/hello").read().decode())'
    inner = f'echo 0 >{client.cgroup.path}/cgroup.procs && exec {shlex.join(client.netns.command("python3", "-c", ask))}'
    print(f'\nrunning until Ctrl-C; as root, elsewhere:\n\n  {Path.cwd()}/build/{MODE}/agentctl --run {node.agentd.run} pods'
          f'\n  sh -c {shlex.quote(inner)}\n', flush=True)


def demo(node):
    client, server = start(node)
    answer = send(client, server)
    show_memory(node)
    for command in ('pods', 'certs', 'xds'):
        show(node.agentd, command)
    print()
    kill_under_load(node, client, server)
    for command in ('redirect', 'status'):
        show(node.agentd, command)
    print(f'\napp of {client.label} -> Envoy -> mTLS -> Envoy -> app of {server.label}:'
          f'\n  path  {answer["path"]}\n  peer  {answer["xfcc"]}\n', flush=True)
    if os.environ.get('KEEP'):
        print_keep(node, client, server)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    if os.geteuid() != 0:
        print('make run: root is needed (network namespaces, cgroups, agentd\'s broker)', file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    status = 1
    try:
        with run.run() as made:
            node = None
            try:
                node = CsiNode(*made)
                demo(node)
                status = 0
            except (RuntimeError, OSError, ValueError) as e:
                say(f'failed: {e}')
            finally:
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
                say('cleaning up')
                if node:
                    node.remove()
    except KeyboardInterrupt:
        say('interrupted')
    except (RuntimeError, OSError, ValueError) as e:
        say(f'failed: {e}')
        status = 1
    say('all gone')
    return status


if __name__ == "__main__":
    sys.exit(main())
