"""The fixtures of the end-to-end tests, on a stock istiod.  What came of each test goes to the file REAL_RESULTS, for matrix.py."""
import json
import os

import pytest

from tests.e2e.conftest import *  # noqa: F403
from tests.e2e.run import wait_for

from .world import VERSION, World


def pytest_runtest_logreport(report):
    """One line a test: how it ended, its teardown included."""
    results = os.environ.get('REAL_RESULTS')
    if results and (report.when == 'call' or report.failed or report.skipped):
        with open(results, 'a') as f:
            f.write(json.dumps({'istiod': VERSION, 'envoy': os.environ['REAL_ENVOY'], 'test': report.nodeid, 'outcome': report.outcome}) + '\n')


@pytest.fixture
def world(make_node):
    """A mesh whose istiod is ready and whose agentd runs."""
    return make_node(kind=World).start()


def start(*pods):
    """Their apps, redirection and Envoys; until each is ready and took all that istiod sent."""
    for pod in pods:
        if not hasattr(pod, 'app'):
            pod.start_app(host='0.0.0.0')
        pod.start_envoy()
    for pod in pods:
        pod.wait_ready()
        wait_for(f'{pod.label} to have ACKed all', lambda p=pod: p.node.istiod.synced(p))
    return pods
