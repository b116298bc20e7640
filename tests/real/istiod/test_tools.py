"""istioctl of the same release, as people use it, on a pod of agentd's and on one with pilot-agent."""
import subprocess

import pytest

from .conftest import start
from .istiod import programs

XDS = '--xds-address', '127.0.0.1:15012', '--insecure'


class Mesh:
    def __init__(self, world):
        self.world, self.ours, self.theirs = world, world.pod('ours'), world.sidecar('theirs')
        start(self.ours, self.theirs)

    def istioctl(self, *args):
        """What it prints; it must be content."""
        istiod = self.world.istiod
        r = subprocess.run([programs(istiod.version) / 'istioctl', '--kubeconfig', istiod.dir / 'kubeconfig', *args], text=True,
                           capture_output=True, timeout=120, check=False, cwd=self.world.dir)
        assert r.returncode == 0, (args, r.stdout[-2000:], r.stderr[-2000:])
        return r.stdout

    def both(self, *args):
        """The lines on ours and on theirs; a place for the pod's name in `args` is {}."""
        return [self.istioctl(*(a.format(f'{pod.name}.demo') for a in args)).replace(pod.name, 'POD').splitlines()
                for pod in (self.ours, self.theirs)]

    def lines(self, *args):
        """Of both kinds of pod, sorted: each knows both of them."""
        return [sorted(self.istioctl(*(a.format(f'{pod.name}.demo') for a in args)).splitlines()) for pod in (self.ours, self.theirs)]


@pytest.fixture
def mesh(world):
    return Mesh(world)


def test_proxy_status(mesh):
    rows = [line.split() for line in mesh.istioctl('proxy-status', *XDS).splitlines()]
    ours, theirs = (next(r for r in rows if r[0] == f'{name}.demo') for name in ('ours', 'theirs'))
    assert [word.partition('(')[0] for word in ours[1:]] == [word.partition('(')[0] for word in theirs[1:]]
    for said in mesh.istioctl('proxy-status', 'ours.demo', *XDS), mesh.istioctl('proxy-status', 'theirs.demo', *XDS):
        assert all(f'{what} Match' in said for what in ('Clusters', 'Listeners', 'Routes')), said
    assert '"proxy": "ours.demo"' in mesh.istioctl('x', 'internal-debug', 'syncz', *XDS)


def test_proxy_config(mesh):
    ours, theirs = mesh.lines('proxy-config', 'cluster', '{}')
    assert ours == theirs and any('theirs.demo.svc.cluster.local' in line for line in ours)
    ours, theirs = mesh.lines('proxy-config', 'endpoint', '{}')
    assert ours == theirs and any(f'{mesh.theirs.ip}:8080' in line for line in ours)
    # Both have the same listeners and routes of istiod's; the inline ones are their bootstrap's.
    for what in 'listener', 'route':
        ours, theirs = ([line.split() for line in lines if not any(word in line for word in ('healthz', 'prometheus', 'backend'))]
                        for lines in mesh.lines('proxy-config', what, '{}'))
        assert ours == theirs and len(ours) > 4
    ours, theirs = ([line.split()[:5] for line in lines] for lines in mesh.lines('proxy-config', 'secret', '{}'))
    assert ours == theirs and [row[0] for row in ours] == ['RESOURCE', 'ROOTCA', 'default']
    assert '"id": "sidecar~' in mesh.istioctl('proxy-config', 'bootstrap', 'ours.demo')
    assert 'Istio Version' in mesh.istioctl('proxy-config', 'all', 'ours.demo')
    assert 'upstream: warning' in mesh.istioctl('proxy-config', 'log', 'ours.demo')
    assert 'upstream: debug' in mesh.istioctl('proxy-config', 'log', 'ours.demo', '--level', 'upstream:debug')


def test_describe(mesh):
    ours, theirs = mesh.both('x', 'describe', 'pod', '{}')
    assert ours == theirs and any('Service: POD' in line for line in ours)


def test_analyze(mesh):
    said = mesh.istioctl('analyze', '-n', 'demo')
    assert 'Error' not in said and 'Warning' not in said
    assert mesh.istioctl('analyze', '-A')


def test_bug_report(mesh):
    """What it would gather; it asks pods by exec, which the stand-in API does not have."""
    assert 'Done.' in mesh.istioctl('bug-report', '--dry-run', '--include', 'demo')
