"""How each agent is started that peers.py compares, and what a pod of it is for load.c.

All of them serve pods with an account each, keys are P-256 and certificates come from one control plane of their own on 127.0.0.1:
the development control plane (tests/istiod), or a SPIRE server.  tests/real/parts/build makes the programs of others.
"""
import contextlib
import json
import re
import time
import uuid
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from tests.e2e.crowd import Crowd
from tests.e2e.netns import free_port
from tests.e2e.node import Node
from tests.e2e.run import TOP, Cgroup, Process, kill_all, sh, wait_for
from tests.real.istiod.world import injected

from . import agent
from .tools import Held, Processes, load

ISTIO, SPIRE = TOP / 'build/real/istio', TOP / 'build/real/spire'
TRUST, UIDS = 'cluster.local', 30000

# Sockets of a pod ('-': none), and a command that makes its client one of the pod's processes.
Pod = namedtuple('Pod', 'sds ads enter', defaults=('-', '-', ()))


def established(port):
    """Connections to 127.0.0.1:`port` of this network namespace."""
    rows = [line.split() for file in ('tcp', 'tcp6') for line in Path(f'/proc/thread-self/net/{file}').read_text().splitlines()[1:]]
    return sum(r[1].endswith(f':{port:04X}') and r[3] == '01' for r in rows)


class Peer:
    """A node with one of the agents: `pods` so far.  Its processes are ended with the run's cgroup."""

    sockets, relays = 'SDS and ADS', True

    def __init__(self):
        self.pods, self._held = [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def hold(self, count):
        """So many pods in all, connected as their Envoys would be; all have everything."""
        new = self.add(count - len(self.pods)) if count > len(self.pods) else []
        self.pods += new
        for enter in dict.fromkeys(p.enter for p in new):
            if enter not in self._held:
                self._held[enter] = Held('back', enter)
            self._held[enter].add([(p.sds, p.ads) for p in new if p.enter == enter])

    def asked(self):
        """A pod whose secret is cached, for more clients."""
        return self.pods[0]

    def _all_back(self):
        for held in self._held.values():
            held.wait(again=True)
        return time.monotonic()

    def connections(self):
        return established(self.port)

    def restarted(self):
        """All of it dies and is started again at once: seconds until each pod has everything again, and their CPU."""
        with ThreadPoolExecutor(1) as pool:
            began, back = time.monotonic(), pool.submit(self._all_back)
            self.kill()
            self.again()
            return back.result() - began, self.processes().cpu_s()

    def remove(self):
        for held in self._held.values():
            held.stop()


class Agentd(Peer):
    """One on the node, in two processes."""

    name = 'agentd'

    def __init__(self, made):
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._node = self._stack.enter_context(agent.node_of(made))
        self._node.agentd.start()
        self.port, self._asked = int(self._node.istiod.address.rpartition(':')[2]), None

    def processes(self):
        return agent.both(self._node)

    def add(self, count):
        there = len(self.pods)
        crowd = Crowd(self._node, count, count, f'from-{there}', first_account=there)
        pods = [Pod(Path(p['mount']) / 'socket', Path(p['mount']) / 'XDS') for p in crowd.pods]
        wait_for('the sockets', lambda: all(s.exists() for p in pods for s in p[:2]))
        return pods

    def asked(self):
        """In a network namespace that has a name: agentd's pods are told apart by theirs."""
        if not self._asked:
            pod = agent._pod(self._node, 'asked')
            pod.write_manifest()
            self._asked = Pod(pod.wait_served().mount / 'socket', pod.mount / 'XDS', ('nsenter', f'--net={pod.netns.path}'))
        return self._asked

    def signed(self):
        return len(self._node.istiod.issued())

    def arrives(self):
        """Milliseconds from a pod's manifest to its first secret."""
        name = f'new-{uuid.uuid4().hex[:8]}'
        return agent._first(self._node, name, name)

    def kill(self):
        self._node.agentd.kill()

    def again(self):
        self._node.agentd.start()

    def remove(self):
        super().remove()
        self._stack.close()


class PilotAgent(Peer):
    """One in each pod, as it is; its Envoy is a program that sleeps, for load.c is what talks to it."""

    name, envoy, uid = 'pilot-agent', True, 1337

    def __init__(self, made, discovery=None, root=None):
        super().__init__()
        if not (ISTIO / 'pilot-agent').exists():
            raise RuntimeError('not built: tests/real/parts/build istio')
        self._node = Node(*made, mode='release')
        self._istiod = self._node.istiod
        self._discovery, self._root = discovery or self._istiod.address, root
        self.port = int(self._istiod.address.rpartition(':')[2])
        self._sleeper = self._node.dir / 'envoy'
        self._sleeper.write_text('#!/bin/sh\nexec sleep infinity\n')
        self._sleeper.chmod(0o755)
        self._cgroup = self._node.cgroup('agents')
        self._directories, self._processes, self._made = [], [], 0

    def processes(self):
        return Processes([p.pid for p in self._processes])

    def _directory(self):
        """What the kubelet and the injector bring; pilot-agent's paths begin at its own directory."""
        self._made += 1
        name = f'p{self._made}'
        where = self._node.dir / name
        for folder in ('etc/istio/pod', 'etc/istio/proxy', 'var/run/secrets/tokens', 'var/run/secrets/istio'):
            (where / folder).mkdir(parents=True)
        roots = [self._istiod.root_file, *([self._root] if self._root else [])]
        (where / 'var/run/secrets/istio/root-cert.pem').write_text(''.join(r.read_text() for r in roots))
        (where / 'var/run/secrets/tokens/istio-token').write_text(self._istiod.tokens.issue('demo', name, name, str(uuid.uuid4())))
        (where / 'etc/istio/pod/labels').write_text(f'app="{name}"\n')
        (where / 'etc/istio/pod/annotations').write_text('')
        sh('chown', '-R', self.uid, where)
        self._directories.append(where)
        return where

    def _environment(self, where):
        settings = {'discoveryAddress': self._discovery, 'binaryPath': str(self._sleeper), 'statusPort': free_port()}
        pod = SimpleNamespace(name=where.name, ns='demo')
        return {**injected(pod, CA_ADDR=self._istiod.address, PROXY_CONFIG=json.dumps(settings)), 'PATH': '/usr/bin:/bin',
                'POD_NAME': where.name, 'POD_NAMESPACE': 'demo', 'SERVICE_ACCOUNT': where.name, 'INSTANCE_IP': '127.0.0.1',
                'ISTIOD_SAN': 'istiod.istio-system.svc', 'ECC_SIGNATURE_ALGORITHM': 'ECDSA', 'GOMAXPROCS': '2',
                'GOMEMLIMIT': str(1 << 30), 'CLOUD_PLATFORM': 'none', **({} if self.envoy else {'DISABLE_ENVOY': 'true'})}

    def _start(self, where):
        self._processes.append(Process(
            ['setpriv', f'--reuid={self.uid}', '--clear-groups', 'env', '-C', where, ISTIO / 'pilot-agent', 'proxy', 'sidecar', '--domain', 'demo.svc.cluster.local', '--templateFile',
             ISTIO / 'envoy_bootstrap.json', '--proxyLogLevel=warning', '--log_output_level=default:info'],
            where / 'agent.log', self._cgroup, env=self._environment(where)))

    def _pod(self, where):
        return Pod(where / 'var/run/secrets/workload-spiffe-uds/socket' if self.envoy else '-', where / 'etc/istio/proxy/XDS')

    def add(self, count):
        new = [self._directory() for _ in range(count)]
        for where in new:
            self._start(where)
        pods = [self._pod(where) for where in new]
        wait_for('the sockets', lambda: all(Path(s).exists() for p in pods for s in p[:2] if s != '-'))
        return pods

    def signed(self):
        return len(self._istiod.issued())

    def arrives(self):
        """Milliseconds from the start of its pilot-agent to its first secret."""
        where, began = self._directory(), time.time()
        self._start(where)
        found = (load('first', self._pod(where).sds, 1)['first_at'] - began) * 1e3
        self._directories.pop()
        self._processes.pop().kill()
        return found

    def kill(self):
        kill_all(self._cgroup.path)
        for p in self._processes:
            p.wait()

    def again(self):
        self._processes = []
        for where in self._directories:
            self._start(where)

    def remove(self):
        super().remove()
        self._node.remove()


class Proxyless(PilotAgent):
    """The same without an Envoy (DISABLE_ENVOY), as for gRPC's own clients: no SDS."""

    name, envoy, uid, sockets = 'without Envoy', False, 1338, 'ADS'  # a user of its own: inotify has a limit for each


class Spire(Peer):
    """One on the node.  A pod is a process with a user of its own, by which the unix attestor tells pods apart."""

    name, sockets, relays = 'SPIRE agent', 'SDS', False
    _SERVER = '''server {{ bind_address = "127.0.0.1"  bind_port = "{port}"  socket_path = "{dir}/server.sock"  trust_domain = "{trust}"
        data_dir = "{dir}"  log_level = "DEBUG" }}
        plugins {{ DataStore "sql" {{ plugin_data {{ database_type = "sqlite3"  connection_string = "{dir}/data" }} }}
        NodeAttestor "join_token" {{ plugin_data {{}} }}  KeyManager "memory" {{ plugin_data {{}} }} }}'''
    _AGENT = '''agent {{ data_dir = "{dir}/agent"  log_level = "WARN"  server_address = "127.0.0.1"  server_port = "{port}"
        socket_path = "{dir}/agent.sock"  insecure_bootstrap = true  trust_domain = "{trust}" }}
        plugins {{ NodeAttestor "join_token" {{ plugin_data {{}} }}  KeyManager "disk" {{ plugin_data {{ directory = "{dir}/agent" }} }}
        WorkloadAttestor "unix" {{ plugin_data {{}} }} }}'''

    def __init__(self, made):
        super().__init__()
        if not all((SPIRE / program).exists() for program in ('spire-server', 'spire-agent')):
            raise RuntimeError('not built: tests/real/parts/build spire')
        self.port, self.dir = free_port(), made[0] / 'spire'
        (self.dir / 'agent').mkdir(parents=True)
        self._server_cgroup, self._cgroup = (Cgroup(f'{made[1].below_root()}/{name}') for name in ('spire-server', 'spire-agent'))
        for name, text in ('server.conf', self._SERVER), ('agent.conf', self._AGENT):
            (self.dir / name).write_text(text.format(dir=self.dir, port=self.port, trust=TRUST))
        Process([SPIRE / 'spire-server', 'run', '-config', self.dir / 'server.conf'], self.dir / 'server.log', self._server_cgroup)
        self._start('-joinToken', wait_for('the SPIRE server', self._token))

    def _server(self, *args):
        try:
            return sh(SPIRE / 'spire-server', *args, '-socketPath', self.dir / 'server.sock')
        except RuntimeError as e:
            raise ValueError(str(e)) from e

    def _token(self):
        return self._server('token', 'generate', '-spiffeID', f'spiffe://{TRUST}/node').split()[1]

    def _start(self, *more):
        self._agent = Process([SPIRE / 'spire-agent', 'run', '-config', self.dir / 'agent.conf', *more], self.dir / 'agent.log', self._cgroup)
        wait_for('the SPIRE agent', lambda: (self.dir / 'agent.sock').is_socket())

    def processes(self):
        return Processes([self._agent.pid])

    def _register(self, uids):
        entries = self.dir / 'entries.json'
        entries.write_text(json.dumps({'entries': [
            {'selectors': [{'type': 'unix', 'value': f'uid:{uid}'}], 'spiffe_id': f'spiffe://{TRUST}/ns/demo/sa/u{uid}',
             'parent_id': f'spiffe://{TRUST}/node'} for uid in uids]}))
        self._server('entry', 'create', '-data', entries)

    def _pod(self, uid):
        return Pod(self.dir / 'agent.sock', enter=('setpriv', f'--reuid={uid}', '--inh-caps=+sys_admin', '--ambient-caps=+sys_admin'))

    def add(self, count):
        uids = range(UIDS + len(self.pods), UIDS + len(self.pods) + count)
        expected = self.signed() + count
        self._register(uids)
        wait_for('their certificates', lambda: self.signed() >= expected)
        return [self._pod(uid) for uid in uids]

    def signed(self):
        """For pods; the server's log says it."""
        return len(re.findall('Signed X509 SVID.*/ns/demo/', (self.dir / 'server.log').read_text()))

    def arrives(self):
        """Milliseconds from the entry's registration to the first secret."""
        self._arrived = getattr(self, '_arrived', UIDS + 10000) + 1
        began = time.time()
        self._register([self._arrived])
        pod = self._pod(self._arrived)
        return (load('first', pod.sds, 1, enter=pod.enter)['first_at'] - began) * 1e3

    def kill(self):
        kill_all(self._cgroup.path)
        self._agent.wait()

    def again(self):
        self._start()
