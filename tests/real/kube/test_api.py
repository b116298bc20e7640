"""injector.mode policy in a whole kube-apiserver, with etcd and nothing else: what it stores is what the engine makes.

tests/helm/test_policy.py asks the same of more pods by the API server's plug-ins alone.
"""
import contextlib
import json
import re
import shutil

import pytest

from tests.helm.same import differences
from tests.helm.test_engine import Engine
from tests.helm.test_injection import pod
from tests.helm.test_policy import VALUES, plainly
from tests.helm.workloads import CASES, REFUSED, T, S, owned

from .cluster import RELEASE, Cluster
from .conftest import KINDS
from .node import Node
from .waiting import wait_for

pytestmark = pytest.mark.on('container')
NATIVE = 'plain', 'sidecars', 'side', 'image', 'level', 'memory', 'ports', 'ranges', 'tls-off', 'quoted', 'rollout', 'cron-owner', 'host-network', 'grpc'
TAKEN = {**{n: CASES[n] for n in NATIVE}, 'set': owned('StatefulSet', 'db')}
OTHERS = {'config': (CASES['hold'], 'a policy cannot do annotation proxy.istio.io/config: use injector.mode webhook, or agentctl inject'),
          'mode': (REFUSED['TPROXY'], 'sidecar.istio.io/interceptionMode is "TPROXY", must be REDIRECT or NONE'), 'volume': (REFUSED['volume'], 'the pod has a volume "agentd" already: rename it'),
          'port': (pod({T + 'excludeInboundPorts': '80,x'}), 'excludeInboundPorts'), 'cpu': (pod({S + 'proxyCPU': 'much'}), 'must be a quantity')}


class Api(Cluster):
    """Its pods are asked for, and not made."""

    def show(self, p, namespace):
        """The pod as it would be stored; an error says why not."""
        spec = {**p['spec'], 'automountServiceAccountToken': False}
        text = json.dumps({**p, 'metadata': {**p['metadata'], 'namespace': namespace}, 'spec': spec})
        made = json.loads(self.kubectl('create', '--dry-run=server', '-o', 'json', '-f', '-', input=text))
        return {k: made[k] for k in ('apiVersion', 'kind', 'metadata', 'spec')}


def bare(p):
    """What is the pod's own."""
    p = plainly(p)
    return {'spec': p['spec'], 'metadata': {k: p['metadata'].get(k) for k in ('labels', 'annotations')}}


@pytest.fixture(name='api', scope='module')
def fixture_api(this_run):
    node = Node(*this_run, KINDS[0])
    made = Api(node)
    try:
        node.boot(order=('etcd', 'apiserver'))

        def answers():
            with contextlib.suppress(RuntimeError):
                return made.kubectl('get', 'namespace', 'default', '-o', 'name')
        wait_for('the API server', answers, 240)
        for name in ('demo', 'plain'):
            made.kubectl('create', 'namespace', name)
            made.kubectl('create', 'serviceaccount', 'web', '-n', name)
        made.kubectl('label', 'namespace', 'demo', 'agentd.node.mesh/injection=enabled')
        (file := node.dir / 'values.json').write_text(json.dumps({'injector': {'mode': 'policy', 'values': VALUES}}))
        made.helm('install', 'agentd', 'helm/agentd', '-n', RELEASE, '--create-namespace', '-f', file)

        def injects():
            with contextlib.suppress(RuntimeError):  # the policy that refuses may be there before the one that injects
                return any('csi' in v for v in made.show(pod(), 'demo')['spec'].get('volumes', ()))
        wait_for('the policies', injects, 120)
        yield made
    finally:
        node.shut_down()
        shutil.rmtree(node.dir)


@pytest.fixture(name='engine')
def fixture_engine(tmp_path):
    (tmp_path / 'values').write_text(json.dumps(VALUES))
    return Engine(tmp_path, hideFromIstiod=True)


def test_what_is_stored_is_the_engines(api, engine):
    shown = {n: api.show(p, 'plain') for n, p in TAKEN.items()}
    for p in shown.values():
        p['metadata']['namespace'] = 'demo'
    injected = 0
    for (name, p), mine in zip(shown.items(), engine.run(shown.values())):
        theirs = api.show(TAKEN[name], 'demo')
        assert not differences(bare(theirs), bare(api.show(mine, 'plain'))), name
        injected += any('csi' in v for v in theirs['spec'].get('volumes', ()))
    assert injected == len(TAKEN) - 1  # hostNetwork


def test_what_is_refused_is_said(api):
    for p, said in OTHERS.values():
        with pytest.raises(RuntimeError, match=re.escape(said)):
            api.show(p, 'demo')


def test_without_the_label_it_stays_as_it_was(api):
    api.kubectl('label', 'namespace', 'demo', 'agentd.node.mesh/injection-')
    wait_for('the label to be seen', lambda: 'volumes' not in api.show(pod(), 'demo')['spec'])


def test_istiods_selectors_are_refused_beside_its_own_injector(api):
    """helm asks the API server whether there is one; of another revision it is somebody else's."""
    theirs = {'apiVersion': 'admissionregistration.k8s.io/v1', 'kind': 'MutatingWebhookConfiguration', 'webhooks': [],
              'metadata': {'name': 'istio-sidecar-injector'}}
    upgrade = ['upgrade', 'agentd', 'helm/agentd', '-n', RELEASE, '--reuse-values', '--dry-run=server', '--set', 'injector.selectors=istio']
    api.helm(*upgrade)
    api.kubectl('apply', '-f', '-', input=json.dumps(theirs))
    with pytest.raises(RuntimeError, match='MutatingWebhookConfiguration istio-sidecar-injector has the same selectors'):
        api.helm(*upgrade)
    api.helm(*upgrade, '--set', 'injector.revision=canary')
