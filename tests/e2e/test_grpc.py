"""What helm/image/vex.json says of the grpc inside, where no other test does."""
import json

from . import clients, oddities
from .conftest import measured
from .run import TOP, wait_for

PODS = 14


def test_no_header_aborts_the_worker(make_node):
    """CVE-2023-1428: header fields that grpc 1.51 measures wrongly, and a later one past the limit."""
    node = make_node()
    node.agentd.start()
    # A pod that sent all of them would soon have used up what it may send.
    pods = [node.pod(f'web-{i}') for i in range(PODS)]
    pods[-1].wait_served()
    worker, sent = node.agentd.worker_pid(), len(list(oddities.variants()))
    told = [pod.wait_served().call(oddities.send, pod.mount / 'socket', i, PODS) for i, pod in enumerate(pods)]
    answered, ended = map(sum, zip(*told))
    measured.append(f'headers of CVE-2023-1428: {sent} sent, {answered} answered by grpc, {ended} connections ended')
    assert sent >= 136 and answered + ended == sent
    assert node.agentd.worker_pid() == worker
    wait_for('it to be forgiven', lambda: 'default' in pods[0].call(clients.fetch_secrets, pods[0].mount / 'socket', ['default'], 60))
    assert node.agentd.metric('agentd_worker_restarts_total') == 0


def test_each_reason_names_a_test_that_exists():
    for cve, why in json.loads((TOP / 'helm/image/vex.json').read_text())['not_affected'].items():
        file, _, name = why['status_notes'].partition('::')
        assert f'def {name}(' in (TOP / file).read_text() or name.endswith('.c') or file.endswith('.c'), cve
