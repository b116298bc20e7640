"""What the tests share: the chart's files, helm, Kubernetes' schemas."""
import os
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import yaml

TOP = Path(__file__).parents[2]
CHART = TOP / 'helm' / 'agentd'
VALUES = Path(__file__).parent / 'values'
HELM = Path(os.environ.get('HELM', TOP / 'build' / 'gobin' / 'helm'))
BUILD = Path(os.environ.get('AGENTD_BUILD', TOP / 'build'))
LABEL = re.compile(r'([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?')
KUBERNETES = [f'1.{minor}' for minor in range(28, 38)]


def helm(*args, chart=CHART, check=True):
    """`helm template` unless another verb comes first."""
    verb, *rest = args
    r = subprocess.run([HELM, verb, *(['agentd'] if verb == 'template' else []), chart, *rest],
                       capture_output=True, text=True, timeout=60, check=False)
    if check and r.returncode:
        raise RuntimeError(f'helm {" ".join(map(str, args))}: {r.stderr}')
    return r


def render(version='1.36', *args, values=()):
    """The chart's objects by (kind, name)."""
    files = [f'--values={VALUES / name}.yaml' for name in values]
    text = helm('template', f'--kube-version={version}.0', '--namespace=istio-system', *files, *args).stdout
    objects = [o for o in yaml.safe_load_all(text) if o]
    by_name = {(o['kind'], o['metadata']['name']): o for o in objects}
    assert len(by_name) == len(objects), 'two objects of one name'
    return by_name


def only(objects, kind):
    found = [o for (k, _), o in objects.items() if k == kind]
    assert len(found) == 1, f'{len(found)} of kind {kind}'
    return found[0]


def validate(thing, version):
    """As strictly as the API server with fieldValidation=Strict."""
    assert kubernetes_validate.validate(thing, version, strict=True) == version
    assert all(LABEL.fullmatch(value) for value in thing['metadata'].get('labels', {}).values()), thing['metadata']['labels']
