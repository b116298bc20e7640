"""What is no difference between the pods of two injectors, and what is one by intent.

    normal(pod)  ->  each rule in turn changes a copy  ->  differences(ours, theirs) must be none

A rule that no workload needs is red, too (test_same.py): so both lists are what there is.
"""
import copy
import json
import re
from decimal import Decimal
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / 'docs' / 'KUBERNETES.md'
OF_PILOT_AGENT = {'ISTIO_META_CLUSTER_ID', 'ISTIO_META_NETWORK', 'ISTIO_KUBE_APP_PROBERS', 'ISTIO_PROMETHEUS_ANNOTATIONS'}
DEFAULTS = {'discoveryAddress': 'istiod.istio-system.svc:15012', 'interceptionMode': 'REDIRECT'}
STATUS, OVERRIDES = 'sidecar.istio.io/status', 'proxy.istio.io/overrides'
SUFFIXES = {'m': Decimal('0.001'), 'Ki': 2**10, 'Mi': 2**20, 'Gi': 2**30, 'k': 10**3, 'M': 10**6, 'G': 10**9}


def containers(p):
    return [c for key in ('containers', 'initContainers') for c in p['spec'].get(key) or ()]


def attributes(p):
    return [v['csi']['volumeAttributes'] for v in p['spec'].get('volumes') or () if 'csi' in v]


def edit(holder, key, change):
    """The JSON in a text."""
    if key in holder:
        value = json.loads(holder[key])
        change(value)
        holder[key] = json.dumps(value)


# --- by intent: a row each in docs/KUBERNETES.md ---

def environment(p):
    for c in containers(p):
        c['env'] = [e for e in c.get('env') or () if e['name'] not in OF_PILOT_AGENT]


def undo(p):
    edit(p['metadata'].get('annotations') or {}, STATUS, lambda status: status.pop('undo', None))


def image_auto(p):
    def change(overrides):
        for c in sum(overrides.values(), []):
            if c.get('image') == 'auto':
                del c['image']
    edit(p['metadata'].get('annotations') or {}, OVERRIDES, change)


def defaults(p):
    def change(config):
        for key, value in DEFAULTS.items():
            if config.get(key) == value:
                del config[key]
    for a in attributes(p):
        edit(a, 'PROXY_CONFIG', change)


BY_INTENT = {'environment of `istio-proxy`': environment, 'annotation `sidecar.istio.io/status`': undo,
             'annotation `proxy.istio.io/overrides`': image_auto, 'attribute `PROXY_CONFIG`': defaults}
# Those that need pods of their own: test_same.py.
OF_OTHERS = {'control characters', 'CronJob', 'pod without name and owner', 'asked again', 'refused here alone'}


# --- the same in other words ---

def amounts(p):
    def number(text):
        text = str(text)
        suffix = next((s for s in SUFFIXES if text.endswith(s)), '')
        return float(Decimal(text.removesuffix(suffix)) * SUFFIXES.get(suffix, 1))
    for c in containers(p):
        for kind in {'limits', 'requests'} & set(c.get('resources') or ()):
            c['resources'][kind] = {k: number(v) for k, v in c['resources'][kind].items()}


def order(p):
    """Of what has names."""
    for c in containers(p):
        for key, by in (('env', 'name'), ('ports', 'containerPort'), ('volumeMounts', 'mountPath')):
            c[key] = sorted(c.get(key) or (), key=lambda x, by=by: str(x[by]))
    p['spec']['volumes'] = sorted(p['spec'].get('volumes') or (), key=lambda v: v['name'])
    edit(p['metadata'].get('annotations') or {}, STATUS,
         lambda status: status.update({k: sorted(v) for k, v in status.items() if k != 'undo' and isinstance(v, list)}))


def probe_ports(p):
    for a in attributes(p):
        a['AGENTD_PROBE_PORTS'] = ','.join(sorted(a.get('AGENTD_PROBE_PORTS', '').split(',')))


def texts(p):
    """JSON in them, by what it says."""
    for a in attributes(p):
        for key in {'PROXY_CONFIG', 'ISTIO_META_POD_PORTS', 'ISTIO_METAJSON_LABELS', 'ISTIO_METAJSON_ANNOTATIONS', 'ISTIO_KUBE_APP_PROBERS',
                    'ISTIO_PROMETHEUS_ANNOTATIONS'} & set(a):
            a[key] = json.loads(a[key])


def annotations(p):
    had = p['metadata'].get('annotations') or {}
    for key in {STATUS, OVERRIDES} & set(had):
        had[key] = json.loads(had[key])


def scalars(p):
    """Of ProxyConfig: protobuf reads "5" as 5, and 1s as 1.0s."""
    def text(v):
        if isinstance(v, dict):
            return {k: text(x) for k, x in v.items()}
        if isinstance(v, list):
            return [text(x) for x in v]
        said = str(v).lower() if isinstance(v, bool) else str(v)
        return f'{float(said[:-1]):g}s' if re.fullmatch(r'[0-9.]+s', said) else said
    for a in attributes(p):
        if isinstance(a.get('PROXY_CONFIG'), dict):
            a['PROXY_CONFIG'] = text(a['PROXY_CONFIG'])


def zeros(p):
    """The zero values of Go's types."""
    def without(v):
        if isinstance(v, dict):
            return {k: w for k, x in v.items() if (w := without(x)) not in (None, {}, [], '') and not (w == 0 and k != 'value')}
        return [without(x) for x in v] if isinstance(v, list) else v
    p['metadata'], p['spec'] = without(p['metadata']), without(p['spec'])


SPELLING = {'amounts': amounts, 'order': order, 'probe ports': probe_ports, 'texts of the volume': texts, 'texts of annotations': annotations, 'scalars': scalars, 'zeros': zeros}


def pod_of(o):
    return o if o['kind'] == 'Pod' else o['spec']['template']


def normal(o, without=None):
    """The pod of an object, by all rules but that one."""
    p = copy.deepcopy(pod_of(o))
    p = {'metadata': {k: p['metadata'].get(k) for k in ('labels', 'annotations')}, 'spec': p['spec']}
    for name, rule in (BY_INTENT | SPELLING).items():
        if name != without:
            rule(p)
    return p


def differences(ours, theirs, path=''):
    """Paths at which two values differ, with both."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [d for k in sorted(ours.keys() | theirs.keys()) for d in differences(ours.get(k), theirs.get(k), f'{path}.{k}')]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [d for n, (a, b) in enumerate(zip(ours, theirs)) for d in differences(a, b, f'{path}[{n}]')]
    return [] if ours == theirs else [f'{path}: ours {ours!r}, theirs {theirs!r}']


def documented():
    """The rows of the table in the document."""
    text = DOCUMENT.read_text()
    table = text[text.index("| where | istiod's injector | ours |"):]
    return {line.split('|')[1].strip() for line in table[:table.index('\n\n')].splitlines()[2:]}
