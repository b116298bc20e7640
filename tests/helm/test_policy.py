"""injector.mode policy by the API server's own plug-ins: the engine's result, or a refusal by name."""
import json
import os
import subprocess

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from .chart import helm, render, validate
from .test_engine import Engine, some_pod
from .test_admission import POLICY
from .test_injection import pod
from .workloads import CASES, REFUSED, S, T, attributes, differences

VALUES = {'global': {'hub': 'registry.istio.io/release', 'tag': '1.29.1'}}
NAMESPACES = {'demo': {'kubernetes.io/metadata.name': 'demo', 'agentd.node.mesh/injection': 'enabled'},
              'plain': {'kubernetes.io/metadata.name': 'plain'},
              'kube-system': {'kubernetes.io/metadata.name': 'kube-system', 'agentd.node.mesh/injection': 'enabled'}}
OWN = 'agentd.node.mesh/inject'


def plain(o):
    """What a user creates; nothing chose a template for it."""
    return o


class Policies:
    """The chart's policies, and the engine that is told the same."""

    def __init__(self, directory, values=None, mesh=None, more=(), leave_out=(), **agentd):
        values = values or VALUES
        file = directory / 'values.json'
        file.write_text(json.dumps({'injector': {'mode': 'policy', 'values': values, **({'meshConfig': mesh} if mesh else {})}}))
        self.objects = render('1.36', f'--values={file}', *more)
        kinds = {'mutating': 'MutatingAdmissionPolicy', 'mutatingBindings': 'MutatingAdmissionPolicyBinding',
                 'validating': 'ValidatingAdmissionPolicy', 'validatingBindings': 'ValidatingAdmissionPolicyBinding'}
        self._chain = directory / 'chain.json'
        self._chain.write_text(json.dumps({'namespaces': NAMESPACES, **{
            k: [o for (kind, _), o in self.objects.items() if kind == v and kind not in leave_out] for k, v in kinds.items()}}))
        (directory / 'values').write_text(json.dumps(values))
        self.engine = Engine(directory, mesh, **{'hideFromIstiod': True, **agentd})

    def ask(self, *pods):
        r = subprocess.run([POLICY, '-chain', self._chain], input='\n'.join(map(json.dumps, pods)), text=True, capture_output=True, timeout=120, check=False)
        assert r.returncode == 0, r.stderr
        return [json.loads(line) for line in r.stdout.splitlines()]

    def compare(self, pods):
        """Those that are taken, each as the engine makes it of the pod as an API server shows it; and what is said of the others."""
        shown = {n: in_namespace({'apiVersion': 'v1', 'kind': 'Pod', **a['pod']}, 'demo')
                 for n, a in zip(pods, self.ask(*(in_namespace(p, 'plain') for p in pods.values())))}
        answers = dict(zip(shown, self.ask(*shown.values())))
        taken = {n: a['pod'] for n, a in answers.items() if 'error' not in a}
        made = self.engine.run([shown[n] for n in taken])
        ours = self.ask(*(in_namespace(p, 'plain') for p in made))  # as an API server shows them, too
        for (name, theirs), mine in zip(taken.items(), ours):
            assert not differences(plainly(theirs), plainly(in_namespace(mine['pod'], 'demo'))), name
        return taken, {n: a['error'] for n, a in answers.items() if 'error' in a}


def in_namespace(p, ns):
    return {**p, 'metadata': {**p['metadata'], 'namespace': ns}}


def plainly(p):
    """All of it; JSON in texts by what it says."""
    p = json.loads(json.dumps(p))
    for v in p['spec'].get('volumes', ()):
        if 'csi' in v:
            v['csi']['volumeAttributes'] = attributes(v['csi']['volumeAttributes'])
    return {'metadata': p['metadata'], 'spec': p['spec']}


@pytest.fixture(name='policies', scope='module')
def fixture_policies(tmp_path_factory):
    return Policies(tmp_path_factory.mktemp('policies'))


ALL = {n: p for n, p in CASES.items() if p['kind'] == 'Pod'}


def test_it_is_what_the_engine_makes(policies):
    taken, refused = policies.compare(ALL)
    for n,r in refused.items(): print(n, r)
    assert len(taken) > 40
