"""Pods as an injector makes them: their volume is published by a kubelet, their Envoy has its container's own command line."""
import re

from .csi import CsiPod
from .pod import envoy_binary
from .run import wait_for


def proxy_of(result):
    containers = [c for k in ('initContainers', 'containers') for c in result['spec'].get(k, ()) if c['name'] == 'istio-proxy']
    assert len(containers) == 1
    return containers[0]


def attributes_of(result):
    volumes = [v for v in result['spec']['volumes'] if 'csi' in v]
    assert len(volumes) == 1 and volumes[0]['csi']['driver'] == 'agentd.node.mesh' and volumes[0]['csi']['readOnly']
    attributes = volumes[0]['csi']['volumeAttributes']
    assert all(isinstance(v, str) for v in attributes.values())
    return attributes


class InjectedPod(CsiPod):
    def __init__(self, node, name, result):
        super().__init__(node, name, sa=result['spec']['serviceAccountName'], attributes=attributes_of(result))
        self.proxy = proxy_of(result)
        node.pods.append(self)

    def envoy_argv(self, *more):
        argv = super().envoy_argv()
        fields = {'metadata.name': self.name, 'metadata.namespace': self.ns, 'status.podIP': self.ip, 'status.podIPs': self.ip}
        env = {e['name']: fields[e['valueFrom']['fieldRef']['fieldPath']] for e in self.proxy['env'] if 'valueFrom' in e}
        args = [re.sub(r'\$\((\w+)\)', lambda m: env[m[1]], a) for a in self.proxy['args']]  # as the kubelet does
        return [*argv[:argv.index(str(envoy_binary())) + 1], *args, *more]

    def wait_ready(self):
        """As the kubelet would find."""
        for probe in ('startupProbe', 'readinessProbe'):
            where = self.proxy[probe]['httpGet']
            wait_for(f'the {probe} of {self.label}', lambda w=where: self.netns.http(w['port'], w['path'], host=self.ip)[0] == 200)
        return self

    def start_ready(self):
        self.sandbox()
        self.start_envoy()
        return self.wait_ready()

    def said_when_running(self):
        """By agentctl: ready."""
        self.wait_running()
        [said] = self.node.agentd.ctl('pods', self.name)['pods']
        assert said['ready'], said
        return said
