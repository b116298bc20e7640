"""Redirection, looked at: agentctl redirect, explain and trace, metrics."""
import json
import os
import signal
import subprocess
import sys

from . import sockets
from .node import BUILD, MODE
from .run import Process, sh, wait_for
from .test_cage import metrics
from .test_redirect import APP, ENVOY, EXCLUDED, Bystander, live, serve, table  # noqa: F401 (a fixture)


def linux():
    return tuple(int(n) for n in os.uname().release.split('.')[:2])


def redirection_of(pod):
    return [p for p in pod.node.agentd.ctl('redirect')['redirect'] if p['uid'] == pod.uid][0]  # LookupError: not known yet


def explain(pod, *args):
    """(exit status, what is said) of one question about the pod."""
    status, text = pod.node.agentd.ctl_text('redirect', 'explain', '--pod', pod.label, *map(str, args))
    return status, text.strip()


def metric(pod, verdict):
    return {line.split('rule="')[1].split('"')[0]: int(line.split()[-1]) for line in metrics(pod.node).splitlines()
            if line.startswith('agentd_redirect_connections_total{') and f'verdict="{verdict}"' in line
            and f'pod="{pod.name}"' in line}


class Trace:
    """What agentctl redirect trace prints, until it is ended."""

    def __init__(self, pod, *args):
        agentd = pod.node.agentd
        self.log = pod.dir / f'trace{len(list(pod.dir.glob("trace*")))}.log'
        with open(self.log, 'wb') as out:
            self.process = subprocess.Popen([BUILD / MODE / 'agentctl', '--run', agentd.run, 'redirect', 'trace', *args],
                                            stdout=out, stderr=out)

    def text(self):
        return self.log.read_text()

    def end(self):
        self.process.terminate()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def test_counters_and_metrics(table):  # noqa: F811
    pod, peer = table
    status, text = pod.node.agentd.ctl_text('redirect')
    assert status == 0 and 'strict' in text and 'unseen' in text, text
    assert peer.call(sockets.dropped, pod.ip, 8080)
    live(pod)
    wait_for('inbound to be redirected', lambda: redirection_of(pod)['inbound'])
    for to, port, n in ((peer.ip, 80, 3), (peer.ip, EXCLUDED, 2), (pod.ip, 8080, 1)):
        for _ in range(n):
            assert isinstance(pod.call(sockets.dial, to, port, APP, APP), dict)
    peer.call(sockets.dial, pod.ip, 8080)
    seen = redirection_of(pod)
    assert seen['in_force'] and seen['mode'] == 'ebpf' and seen['policy'] == 'strict'
    counters = seen['counters']
    assert counters['included range'] == 3 and counters['excluded outbound port'] == 2
    assert counters['the app calls its own pod'] == 1 and counters['inbound'] == 1
    assert counters['the pod is not live yet'] >= 1
    assert (seen['redirected'], seen['passed']) == (4, 3) and seen['dropped'] >= 1, counters  # each once
    assert metric(pod, 'redirected') == {'included_range': 3, 'inbound': 1}
    assert metric(pod, 'passed')['excluded_outbound_port'] == 2
    assert metric(pod, 'dropped')['not_live'] >= 1 and metric(pod, 'dropped')['no_memory'] == 0  # known before the first
    pod.manifest_file.unlink()
    wait_for('its samples to go', lambda: not metric(pod, 'redirected'))


def test_explain_is_what_happens(table):  # noqa: F811
    pod, peer = table
    app, proxy = ('--uid', APP, '--gid', APP), ('--uid', ENVOY, '--gid', ENVOY)
    assert explain(pod, peer.ip, f'{pod.ip}:8080') == (0, 'inbound: dropped: the pod is not live yet')
    live(pod)
    for args, said in (
            ((*app, f'{peer.ip}:80'), 'outbound: redirected: included range'),
            ((*app, f'[{peer.ip6}]:80'), 'outbound: redirected: included range'),
            ((*app, f'{peer.ip}:{EXCLUDED}'), 'outbound: passed: excluded outbound port'),
            ((*app, '--udp', f'{peer.ip}:80'), 'outbound: passed: not TCP'),
            ((*app, f'{pod.ip}:8080'), 'outbound: passed: the app calls its own pod'),
            ((*proxy, f'{peer.ip}:80'), "outbound: passed: the proxy's uid"),
            ((*proxy, f'{pod.ip}:8080'), 'outbound: redirected: the proxy calls its own pod'),
            ((peer.ip, f'{pod.ip}:8080'), 'inbound: redirected: inbound'),
            ((peer.ip, f'{pod.ip}:15020'), 'inbound: passed: excluded inbound port'),
            ((peer.ip, f'{pod.ip}:15008'), 'inbound: passed: tunnel port'),
            ((*app, pod.ip, f'{pod.ip}:8080'), 'outbound: passed: the app calls its own pod')):
        assert explain(pod, *args) == (0, said), args
    for args, status in (((f'{peer.ip}:80',), 2), ((*app, 'nowhere:80'), 1), ((*app, f'{peer.ip}:99999'), 1),
                         ((*app, f'{peer.ip}:80&pod=x'), 2), ((peer.ip, f'{peer.ip}:80'), 1)):
        assert explain(pod, *args)[0] == status, args
    status, text = pod.node.agentd.ctl_text('redirect', 'explain', '--pod', 'nobody', '--uid', '1', '--gid', '1', '1.2.3.4:5')
    assert status == 4 and 'no such name' in text


def test_trace(table):  # noqa: F811
    pod, peer = table
    live(pod)
    trace = Trace(pod, pod.label)
    try:
        def traced():
            pod.call(sockets.dial, peer.ip, 80, APP, APP)
            return 'included range' in trace.text()
        wait_for('the first decision', traced)
        pod.call(sockets.dial, peer.ip6, EXCLUDED, APP, APP)
        peer.call(sockets.dial, pod.ip, 8080)
        wait_for('the last decision', lambda: f'from {peer.ip} -> tcp {pod.ip}:8080  redirected: inbound' in trace.text())
        text = trace.text()
        assert f'{pod.label}  uid {APP} gid {APP} -> tcp {peer.ip}:80  redirected: included range\n' in text
        assert f'-> tcp [{peer.ip6}]:{EXCLUDED}  passed: excluded outbound port\n' in text
        assert 'from the pod itself' not in text  # what was captured arrives at its Envoy, which is nothing new
    finally:
        trace.end()
    wait_for('the programs to be told', lambda: not traces_on(pod))


def test_traces_end_with_who_reads_them(table):  # noqa: F811
    pod, peer = table
    live(pod)
    assert not traces_on(pod)
    traces = [Trace(pod, '-o', 'json') for _ in range(2)]

    def both_tell():
        pod.call(sockets.dial, peer.ip, 80, APP, APP)
        return all('\n' in trace.text() for trace in traces)
    wait_for('a line of each', both_tell)
    for trace in traces:
        line = json.loads(trace.text().splitlines()[0])
        assert (line['pod'], line['to'], line['port'], line['lost']) == (pod.label, peer.ip, 80, 0), line
    traces[0].end()
    assert traces_on(pod)
    pod.node.agentd.kill()
    assert traces[1].process.wait() == 0
    pod.node.agentd.start()
    wait_for('the next agentd to look at its pods', lambda: not traces_on(pod))


def traces_on(pod):
    """The flag, as the programs see it."""
    pins = next((pod.node.dir / 'bpf' / 'agentd').iterdir())
    dump = json.loads(subprocess.run(['bpftool', '-j', 'map', 'dump', 'pinned', pins / 'map_pods_by_index'],
                                     capture_output=True, check=True).stdout)
    return any(e['formatted']['value']['flags'] & 1 << 6 for e in dump)


def istio_rules(pod):
    sh(*pod.netns.command('iptables-nft-restore'), input='*nat\n:ISTIO_OUTPUT - [0:0]\n-A OUTPUT -j ISTIO_OUTPUT\nCOMMIT\n')


def test_two_at_once(table):  # noqa: F811
    """A strict pod with istio's own rules stays closed; a permissive one is left to them."""
    pod, peer = table
    istio_rules(pod)
    live(pod)
    status, text = wait_for('the refusal', lambda: (r := pod.node.agentd.ctl_text('redirect')) and r[0] and r)
    assert status == 1 and "istio's own rules (iptables-nft chain, ISTIO_OUTPUT)" in text, text
    assert peer.call(sockets.dropped, pod.ip, 8080)
    assert not next(p for p in pod.node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)['ready']
    pod.fields['redirect']['policy'] = 'permissive'
    pod.write_manifest()
    wait_for('the pod to be let go', lambda: not peer.call(sockets.dropped, pod.ip, 8080)
             and "istio's own rules" in redirection_of(pod)['why_not'])
    assert pod.call(sockets.dial, peer.ip, 80, APP, APP)['port'] == 80
    pod.fields['redirect'] = {'mode': 'istio-cni'}
    pod.write_manifest()
    wait_for('peace', lambda: pod.node.agentd.ctl_text('redirect')[0] == 0)


def nudged(pod):
    """Redirection of the pod, after the audit's minute was made shorter."""
    pins = next((pod.node.dir / 'bpf' / 'agentd').iterdir())
    (pins / 'nudge').mkdir()
    (pins / 'nudge').rmdir()
    return redirection_of(pod)


def no_istio_rules(pod):
    sh(*pod.netns.command('iptables-nft', '-t', 'nat', '-F'))
    sh(*pod.netns.command('iptables-nft', '-t', 'nat', '-X'))


def test_rules_that_go(table):  # noqa: F811
    """Its Envoy has said all it has to say."""
    pod, peer = table
    istio_rules(pod)
    live(pod)
    wait_for('the refusal', lambda: "istio's own rules" in redirection_of(pod)['why_not'])
    no_istio_rules(pod)
    wait_for('its arrivals to be redirected', lambda: nudged(pod)['inbound'])
    assert redirection_of(pod)['why_not'] == '' and peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006


def test_rules_that_come_later(table):  # noqa: F811
    """A pod that lives is told of, not touched."""
    pod, peer = table
    live(pod)

    def problem():
        return nudged(pod)['why_not']
    assert problem() == ''
    istio_rules(pod)
    why = wait_for('somebody to notice', problem)
    assert "istio's own rules (iptables-nft chain, ISTIO_OUTPUT)" in why
    assert 'redirected twice' in pod.node.agentd.log.read_text()
    assert redirection_of(pod)['inbound'] and peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006
    no_istio_rules(pod)
    wait_for('peace', lambda: not problem())
    wait_for('the table to say so', lambda: pod.node.agentd.ctl_text('redirect')[0] == 0)


def speak_from_the_host(pod):
    """In the pod's cgroup, but in the node's network namespace: what an Envoy with hostNetwork would be."""
    here = Process([sys.executable, '-c', HOST_CLIENT, pod.mount / 'socket'], pod.dir / 'host.log', pod.cgroup)
    assert here.wait() == 0, 'it was served'


def test_a_process_of_the_host(table):  # noqa: F811
    """It opens no gate, whichever agentd it speaks to, and whoever looks is told what to do."""
    pod, peer = table
    agentd = pod.node.agentd

    def refused():
        speak_from_the_host(pod)
        wait_for('the reason', lambda: 'hostNetwork is never redirected; give it mode none' in redirection_of(pod)['why_not'])
        assert not redirection_of(pod)['inbound']
        assert peer.call(sockets.dropped, pod.ip, 8080)
    refused()
    agentd.process.send(signal.SIGUSR2)  # an upgrade knows the node's namespace by what the first one kept
    wait_for('another agentd', lambda: [p['why_not'] for p in agentd.ctl('redirect')['redirect']] == [''])
    refused()
    agentd.kill()
    agentd.start()
    refused()
    live(pod)
    wait_for('the pod itself', lambda: redirection_of(pod)['inbound'] and not redirection_of(pod)['why_not'])
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006
    speak_from_the_host(pod)
    assert redirection_of(pod)['inbound'] and peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006


def test_a_permissive_pod_of_the_host(table):  # noqa: F811
    """It is left alone, both ways."""
    pod, peer = table
    pod.write_manifest(redirect={'policy': 'permissive'})
    wait_for('the policy', lambda: redirection_of(pod)['policy'] == 'permissive' and redirection_of(pod)['in_force'])
    assert pod.call(sockets.dial, peer.ip, 80, APP, APP)['port'] == 15001
    speak_from_the_host(pod)
    wait_for('it to be let go', lambda: pod.call(sockets.dial, peer.ip, 80, APP, APP)['port'] == 80
             and 'hostNetwork' in redirection_of(pod)['why_not'])
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 8080
    assert 'hostNetwork' in redirection_of(pod)['why_not'] and not redirection_of(pod)['in_force']
    assert pod.node.agentd.ctl_text('status')[0] == 1


class WithHostNetwork:
    """Where a process of a pod is that has no network of its own."""

    def __init__(self, pod, node_netns):
        self.netns, self.cgroup, self.dir = node_netns, pod.cgroup, pod.dir


def test_a_process_with_host_network_sees_no_change(capturing):
    """Out and in, under the rules of a strict pod; from Linux 6.15 on also what listened before them."""
    node = capturing()
    here, peer = Bystander(node, 'node'), Bystander(node)  # agentd's own network is one of the test's
    node.agentd.around, node.agentd.netns = here.netns.command(), here.netns
    pod = node.pod('pod', manifest=False)
    node.pods += here, peer
    mistake = WithHostNetwork(pod, here.netns)
    serve(mistake, APP, 8081)
    pod.write_token()
    pod.write_manifest()
    node.agentd.start()
    wait_for('the rules', lambda: redirection_of(pod)['in_force'] and redirection_of(pod)['policy'] == 'strict')
    serve(mistake, APP, 8080)
    serve(pod, APP, 8080)
    serve(peer, 0, 80)
    assert here.netns.submit(pod.cgroup, sockets.dial, peer.ip, 80, APP, APP).result(60)['port'] == 80
    assert peer.call(sockets.dial, here.ip, 8080)['port'] == 8080
    if linux() >= (6, 15):
        assert peer.call(sockets.dial, here.ip, 8081)['port'] == 8081
    assert pod.call(sockets.dial, peer.ip, 80) == 'ConnectionRefusedError', 'the pod itself is captured'
    assert peer.call(sockets.dropped, pod.ip, 8080), 'and closed'


def test_somebody_of_the_host(table):  # noqa: F811
    """Who is not in the pod's cgroup says nothing about it."""
    pod, _ = table
    pod.cgroup, home = pod.node.agentd.cgroup, pod.cgroup
    try:
        speak_from_the_host(pod)
    finally:
        pod.cgroup = home
    assert "node's own network namespace" in pod.node.agentd.log.read_text() and redirection_of(pod)['why_not'] == ''


HOST_CLIENT = '''
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(60)
s.connect(sys.argv[1])
assert s.recv(1) == b''
'''
