"""What helm/image/vex.json says of the libraries inside, where no other test does."""
import json
import os

from . import clients, oddities
from .conftest import measured
from .run import TOP, wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
# A pod that sent all of them would soon have used up what it may send: each sends a part.
PARTS = 14
PODS = PARTS if SOAK else 4


def test_no_header_aborts_the_worker(make_node):
    """CVE-2023-1428: header fields that grpc 1.51 measures wrongly, and a later one past the limit."""
    node = make_node()
    node.agentd.start()
    pods = [node.pod(f'web-{i}') for i in range(PODS)]
    pods[-1].wait_served()
    worker = node.agentd.worker_pid()
    sent = sum(1 for at, _ in enumerate(oddities.variants()) if at % PARTS < PODS)
    told = [pod.wait_served().call(oddities.send, pod.mount / 'socket', i, PARTS) for i, pod in enumerate(pods)]
    answered, ended = map(sum, zip(*told))
    measured.append(f'headers of CVE-2023-1428: {sent} sent, {answered} answered by grpc, {ended} connections ended')
    assert sent >= (136 if SOAK else 70) and answered + ended == sent
    assert answered >= PODS, 'grpc itself has seen some of each pod'
    assert node.agentd.worker_pid() == worker
    wait_for('it to be forgiven', lambda: 'default' in pods[0].call(clients.fetch_secrets, pods[0].mount / 'socket', ['default'], 60))
    assert node.agentd.metric('agentd_worker_restarts_total') == 0


def test_each_reason_names_a_test_that_exists():
    known = json.loads((TOP / 'helm/image/vex.json').read_text())
    for cve, why in ((cve, why) for of in known.values() for cve, why in of['cves'].items() if 'justification' in why):
        file, _, name = why['status_notes'].partition('::')
        assert f'def {name}(' in (TOP / file).read_text() if name else (TOP / file).exists(), cve
