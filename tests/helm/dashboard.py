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

from tests.e2e import clients, mesh
from tests.e2e.csi import CsiNode
from tests.e2e.run import run, wait_for

from .prometheus import DASHBOARD, free_port, prometheus

STEP_S = 5


def expression_of(target):
    return target['expr'].replace('$instance', '.*')


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

    def a_stranger_knocks(self):
        """A process of the host's at a pod's socket."""
        for _ in range(20):
            clients.on_the_host(clients.secrets, self.pods[0].mount / 'SDS', ['default'])

    def the_worker_is_killed(self):
        os.kill(self.node.agentd.worker_pid(), signal.SIGKILL)

    def istiod_goes(self):
        self.node.istiod.process.kill()

    def istiod_comes(self):
        self.node.istiod.start()

    def pods_go(self):
        for pod in self.pods[2:]:
            pod.remove()
