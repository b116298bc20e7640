"""What the chart's dashboard has to show of a running agentd: `dashboard FILE MINUTES` (tests/tools/dashboard).

A node of real Envoys under traffic, to which things happen; a real Prometheus scrapes it, and answers each panel's expressions.
FILE gets, in JSON, each panel as the dashboard has it, its targets with what they were answered: [{metric, values}].
"""
import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.e2e import mesh
from tests.e2e.csi import CsiNode
from tests.e2e.run import run, wait_for

from .prometheus import DASHBOARD, expression, free_port, prometheus

STEP_S = 10


class Scene:
    """What happens to the node, and how far in the time it does."""

    def __init__(self, node):
        self.node, self.pods, self.load = node, [], None

    def add(self, name, sa, **resources):
        pod = self.node.csi_pod(name, sa=sa)
        pod.sandbox()
        self.node.istiod.set(pod.id, **resources)
        pod.start_envoy()
        self.pods.append(pod)
        return pod

    def client_and_server(self):
        server = self.node.csi_pod('server')
        client = self.node.csi_pod('client')
        for pod in (server, client):
            pod.sandbox()
        self.node.istiod.set(client.id, **mesh.captured_client(server))
        self.node.istiod.set(server.id, **mesh.captured_server([client]))
        server.start_app(mesh.APP, '0.0.0.0')
        for pod in (server, client):
            pod.start_envoy().wait_ready()
        self.pods += [server, client]
        self.load = client.load(mesh.APP, server.ip)

    def more_pods(self):
        for name in ('batch-0', 'batch-1', 'batch-2'):
            self.add(name, 'batch', **mesh.captured_plain())

    def a_push_is_refused(self):
        client = self.pods[1]
        good = mesh.captured_client(self.pods[0])
        self.node.istiod.set(client.id, listeners=[*good['listeners'], mesh.BROKEN_LISTENER])

    def the_push_is_mended(self):
        self.node.istiod.set(self.pods[1].id, **mesh.captured_client(self.pods[0]))

    def the_worker_is_killed(self):
        os.kill(self.node.agentd.worker_pid(), signal.SIGKILL)

    def istiod_goes(self):
        self.node.istiod.process.kill()

    def istiod_comes(self):
        self.node.istiod.start()

    def pods_go(self):
        for pod in self.pods[2:]:
            pod.envoy.stop()
            pod.delete()


# In parts of the time.
HAPPENS = ((0.10, Scene.more_pods), (0.25, Scene.a_push_is_refused), (0.40, Scene.the_push_is_mended),
           (0.60, Scene.the_worker_is_killed), (0.70, Scene.istiod_goes), (0.80, Scene.istiod_comes), (0.90, Scene.pods_go))


def record(node, folder, seconds):
    """The panels with their answers."""
    port = free_port()
    node.agentd.flags += ['--metrics', f'127.0.0.1:{port}']
    node.capture()
    node.start()
    scene = Scene(node)
    with prometheus(node, f'127.0.0.1:{port}', folder) as at:
        wait_for('Prometheus', lambda: at.ask('query', query='up{job="agentd"} == 1'))
        begin = time.time()
        scene.client_and_server()
        for part, event in HAPPENS:
            time.sleep(max(0.0, begin + part * seconds - time.time()))
            print(f'{time.time() - begin:5.0f} s  {event.__name__}', flush=True)
            event(scene)
        time.sleep(max(0.0, begin + seconds - time.time()))
        counts = scene.load.stop()
        print(f'{counts["ok"]} requests answered, {counts["failed"]} failed')
        end = time.time()
        for panel in DASHBOARD['panels']:
            for target in panel['targets']:
                target['answer'] = at.ask('query_range', query=expression(target), start=begin, end=end, step=STEP_S)['result']
    return {'seconds': round(end - begin), 'panels': DASHBOARD['panels']}


def main():
    file, minutes = Path(sys.argv[1]), float(sys.argv[2])
    with run() as made:
        node = CsiNode(*made, mode='release')
        try:
            found = record(node, node.dir, minutes * 60)
        finally:
            node.remove()
    empty = [p['title'] for p in found['panels'] for t in p['targets'] if not t['answer']]
    if empty:
        sys.exit(f'dashboard: nothing to show in: {", ".join(empty)}')
    file.write_text(json.dumps(found))


if __name__ == '__main__':
    main()
