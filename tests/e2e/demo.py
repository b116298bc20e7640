"""What `make run` shows: agentd gives two real Envoys their certificates and configuration.

    app of client -> Envoy -> mTLS -> Envoy -> app of server

The apps know nothing of it: the client dials the server's address, eBPF brings what they say to the Envoys.
"""
import os
import signal
import sys
import time

from . import clients, mesh, run
from .node import Node

_started = time.monotonic()


def say(text):
    print(f'{time.monotonic() - _started:6.1f} s  {text}', flush=True)


def show(agentd, *command):
    """An agentctl command as one would type it, and what it prints."""
    _, text = agentd.ctl_text(*command)
    print(f'\n$ agentctl {" ".join(command)}\n{text.rstrip()}', flush=True)


def start(node):
    say(f'control plane: 127.0.0.1:{node.istiod.address.rpartition(":")[2]} (CA, ADS, token check)')
    node.agentd.settings = {'node_name': 'demo-node'}
    node.capture()
    node.agentd.start()
    say(f'agentd: broker {node.agentd.process.pid} as root, worker {node.agentd.worker_pid()} unprivileged')
    server, client = (node.pod(name, sa=f'{name}-sa') for name in ('server', 'client'))
    node.istiod.set(client.id, **mesh.captured_client(server))
    node.istiod.set(server.id, **mesh.captured_server([client]))
    server.start_app(mesh.APP, '0.0.0.0')
    for pod in (server, client):
        pod.start_envoy()
        say(f'pod {pod.label}: service account {pod.sa}, {pod.ip}, netns {pod.netns.name}, Envoy {pod.envoy.pid}')
    for pod in (server, client):
        pod.wait_ready()
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


def demo(node):
    client, server = start(node)
    answer = send(client, server)
    for command in ('status', 'pods', 'certs', 'xds'):
        show(node.agentd, command)
    print(f'\napp of {client.label} -> Envoy -> mTLS -> Envoy -> app of {server.label}:'
          f'\n  path  {answer["path"]}\n  peer  {answer["xfcc"]}\n', flush=True)
    if os.environ.get('KEEP'):
        say(f'running until Ctrl-C:  build/release/agentctl --run {node.agentd.run} pods'
            f'\n          {" ".join(client.netns.command())} curl -s http://{server.ip}:{mesh.APP}/   (from the cgroup {client.cgroup.below_root()})')
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
                node = Node(*made, mode='release')
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
