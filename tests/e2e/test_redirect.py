"""Traffic redirection by eBPF: programs talk by address, and both Envoys carry what they say."""
import contextlib

import pytest

from . import clients, mesh
from .run import sh, wait_for


@pytest.fixture
def capturing(make_node):
    """A node whose agentd redirects; its own cgroup tree and its own bpffs."""
    with contextlib.ExitStack() as stack:
        def make(**kw):
            node = make_node(**kw)
            bpffs = node.dir / 'bpf'
            bpffs.mkdir()
            sh('mount', '-t', 'bpf', 'bpf', bpffs)
            stack.callback(sh, 'umount', bpffs)
            node.agentd.flags += ['--redirect', '--redirect-cgroup', node.cgroup_name, '--bpffs', bpffs]
            node.agentd.settings['redirect'] = 'ebpf'
            return node
        yield make


def captured_pair(node):
    server, client = (node.pod(n) for n in ('server', 'client'))
    node.istiod.set(client.id, **mesh.captured_client(server))
    node.istiod.set(server.id, **mesh.captured_server([client]))
    server.start_app(mesh.APP, '0.0.0.0')
    for pod in (server, client):
        pod.start_envoy()
    for pod in (server, client):
        pod.wait_ready()
    return client, server


def test_two_programs_talk_by_address(capturing):
    node = capturing()
    node.agentd.start()
    client, server = captured_pair(node)

    def answer():
        status, content = client.call(clients.get_json, f'http://{server.ip}:{mesh.APP}/hello')
        return status == 200 and content
    assert f'URI={mesh.spiffe(client.ns, client.sa)}' in wait_for('the first answer', answer)['xfcc']
