"""A roll-out with other values, under requests (docs/KUBERNETES.md, "A changed value"), while certificates live a minute."""
import contextlib
import json
import re
import time

import pytest

from . import apps
from .cluster import RELEASE, commands, conditions
from .load import Load
from .waiting import wait_for

pytestmark = [pytest.mark.usefixtures('well'), pytest.mark.on('whole')]
LIFE_S = 60
TRIAL_S = 10  # a try, within which no certificate is renewed, is short of half a life
BRIEF = {**apps.MESHED, 'proxy.istio.io/config': json.dumps({'proxyMetadata': {'SECRET_TTL': f'{LIFE_S}s'}}),
         'traffic.sidecar.istio.io/excludeOutboundPorts': '9999'}
STOPS = {'clusterId=prod-eu-1': 'istiod: UNAUTHENTICATED', 'trustDomain=moved.example': 'cert: '}
# Of these istiod knows nothing: the pods are served, and some go beyond what a new one may have.
PASSES = 'meshId=mesh-new', 'secretTtlMaxSeconds=50', 'maxPods=1', 'redirect.allow={permissive}'


@pytest.fixture(scope='module', name='brief')
def fixture_brief(mesh):
    """Client and server with certificates of a minute."""
    def pair(annotations):
        mesh.apply(*apps.pair(annotations))
        for name in ('web', 'client'):
            mesh.rolled_out(f'deployment/{name}')
            wait_for('one pod', lambda: len(mesh.pods(name)) == 1)
        wait_for('the first answer', mesh.ask)
    with mesh.upgraded('--set', f'secretTtlMinSeconds=30,takeOverSeconds={TRIAL_S}'):
        pair(BRIEF)
        yield mesh
        pair(apps.MESHED)


def two_lives(mesh, load):
    def serials():
        with contextlib.suppress(RuntimeError):  # from one agentd to the next one
            return set(mesh.serials())
    first, end = wait_for('the certificates', serials), time.monotonic() + 2 * LIFE_S
    while time.monotonic() < end:
        load.more(10)
    wait_for('newer ones', lambda: (now := serials()) and now - first)


@pytest.mark.parametrize('value', STOPS)
def test_a_value_that_istiod_refuses_stops_the_roll_out(brief, value):
    """By the commands of the document: what it says, and the way back."""
    old = brief.agentd_pod()
    shown, reason = commands('A roll-out that stops')[0], STOPS[value]
    with Load(brief) as load:
        brief.helm_upgrade('--set', value)
        try:
            wait_for('the new one to say why', lambda: re.search(
                f'the agentd before this one goes on, .*\ndemo/(web|client)-.*{reason}', brief.script(f'{{\n{shown}}} || :')))
            two_lives(brief, load)
            new, = set(brief.agentd_pods()) - {old}
            assert [conditions(brief.get('pod', pod, RELEASE))['Ready'] for pod in (old, new)] == ['True', 'False']
        finally:
            brief.helm('rollback', 'agentd', '-n', RELEASE)
            brief.rolled_out('daemonset/agentd', RELEASE)
        wait_for('one agentd', lambda: brief.agentd_pods() == [old])
        load.more(10)
    assert load.failed == 0


def test_values_that_bind_new_pods_pass(brief, made):
    with Load(brief) as load:
        with brief.upgraded(*(word for value in PASSES for word in ('--set', value))):
            two_lives(brief, load)
            page = json.loads(brief.agentctl('pods', f'demo/{brief.pod("client")}', '-o', 'json'))['pods'][0]
            assert {'ISTIO_META_MESH_ID', 'SECRET_TTL'} <= {x.split(' ')[0] for x in page['ignored']}
            assert not brief.well() and brief.redirection(brief.pod('client'))['above']
            made(apps.pod('third'))
            wait_for('its refusal', lambda: any('--max-pods' in e for e in brief.events('third')))
    assert load.failed == 0
