"""What can be said of the chart without helm: part of `make test`."""
import json
import re

import jsonschema
import pytest
import yaml

from .chart import CHART, TOP, VALUES

SCHEMA = json.loads((CHART / 'values.schema.json').read_text())
TEMPLATE = (CHART / 'files' / 'injection-template.yaml').read_text()
HELPERS = (CHART / 'templates' / '_helpers.tpl').read_text()


def source(name):
    return (TOP / 'agentd' / name).read_text()


def test_the_schema_is_one():
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize('file', [CHART / 'values.yaml', *sorted(VALUES.glob('*.yaml'))], ids=lambda f: f.stem)
def test_values_conform(file):
    default = yaml.safe_load((CHART / 'values.yaml').read_text())
    jsonschema.validate({**default, **yaml.safe_load(file.read_text())}, SCHEMA)


def keys(schema):
    """Every key that a user may write, and what is below it."""
    for name, sub in schema.get('properties', {}).items():
        yield name
        if name == 'settings':
            continue  # agentd.yaml's own keys: agentd.yaml(5) has them
        yield from keys(sub)
        yield from keys(sub.get('items', {}))


def test_every_key_is_in_the_values_file():
    """It is the chart's documentation; `global` is helm's."""
    text = (CHART / 'values.yaml').read_text()
    missing = {k for k in keys(SCHEMA) if not re.search(rf'\b{k}\b', text)}
    assert missing <= {'global', 'user', 'role', 'level'}, missing


def test_nothing_unknown_is_allowed():
    def walk(schema, path):
        if 'properties' in schema:
            assert schema['additionalProperties'] is False, path
        for name, sub in schema.get('properties', {}).items():
            walk(sub, f'{path}.{name}')
        if 'items' in schema:
            walk(schema['items'], f'{path}[]')
    walk(SCHEMA, '')


def test_settings_exist():
    """The names that _helpers.tpl writes are rows of agentd's tables."""
    config = HELPERS[HELPERS.index('define "agentd.config"'):]
    flat, planes = config.split('control_planes:')
    rows = set(re.findall(r'(?:TEXT|BOOLEAN|NUMBER)_ROW\(\s*(\w+)', source('worker/config/table.c')))
    written = set(re.findall(r'"(\w+)" (?:\(int64 )?\.Values', flat))
    assert len(written) == 14 and written <= rows, written - rows
    pairs = re.search(r'\$keys := dict\s(.*?)}}', planes, re.S)[1]
    words = re.findall(r'"(\w+)"', pairs)
    rows = set(re.findall(r'(?:TEXT|NUMBER)_ROW\(\s*(\w+)', source('worker/config/planes.c')))
    assert set(words[1::2]) == rows, set(words[1::2]) ^ rows
    ours = set(SCHEMA['properties']['controlPlanes']['items']['properties'])
    assert ours == set(words[::2]) | {'rootConfigMap', 'crlConfigMap'}


def test_each_setting_is_in_the_schema():
    """agentd's rows with their types and bounds, but for those that the chart alone knows."""
    table = source('worker/config/table.c')
    numbers = {'YEAR': 365 * 86400, 'DAY': 86400}
    rows = {name: {'type': 'string'} for name in re.findall(r'^ +TEXT_ROW\((\w+)', table, re.M)}
    rows |= {name: {'type': 'boolean'} for name in re.findall(r'^ +BOOLEAN_ROW\((\w+)', table, re.M)}
    rows |= {name: {'type': 'integer', 'minimum': int(least), 'maximum': numbers.get(most) or int(most)}
             for name, least, most in re.findall(r'^ +NUMBER_ROW\((\w+), (\d+), (\w+)\)', table, re.M)}
    assert SCHEMA['properties']['settings']['properties'] == {k: v for k, v in rows.items() if k not in ('node_name', 'host_ip')}


def test_flags_exist():
    known = set(re.findall(r'^    (?:[A-Z]+\(|\{)\s*"([a-z-]+)",', source('common/flags.c'), re.M))
    used = set(re.findall(r'^ +- --([a-z-]+)', (CHART / 'templates' / 'daemonset.yaml').read_text(), re.M))
    assert {'take-over', 'linger', 'root-file', 'node-name'} <= used <= known, used - known


def test_agentd_knows_the_attributes():
    """A key that agentd would only list as ignored or unsupported is of no use in the volume."""
    rows = re.findall(r'ROW\("([^"]+)",\s*(\w+)', source('mesh/env_keys.c'))
    written = set(re.findall(r'set \$attributes "([A-Z_]+)"', TEMPLATE)) | set(re.findall(r'"(ISTIO_[A-Z_]+)" [.$(]', TEMPLATE))
    assert len(written) >= 18 and {'PROXY_CONFIG', 'ISTIO_METAJSON_LABELS', 'ISTIO_SERVICE_CIDR'} <= written
    reserved = re.search(r'reserved\[\] = \{(.*?)\};', source('mesh/env_meta.c'), re.S)[1]
    for key in sorted(written):
        how = next((h for name, h in rows if name == key or name[-1] == '*' and key.startswith(name[:-1])), None)
        assert how not in (None, 'ignored', 'unsupported'), f'{key}: {how}'
        assert f'"{key.removeprefix("ISTIO_META_")}"' not in reserved or how != 'meta', f'{key} is reserved'


def test_the_chart_is_of_this_release():
    chart = yaml.safe_load((CHART / 'Chart.yaml').read_text())
    assert chart['appVersion'] == (TOP / 'VERSION').read_text().strip()


def expressions():
    """Of the alerts and of the dashboard."""
    for rule in yaml.safe_load((CHART / 'files' / 'rules.yaml').read_text())['groups'][0]['rules']:
        yield rule['expr']
    for panel in json.loads((CHART / 'files' / 'dashboard.json').read_text())['panels']:
        yield from (t['expr'] for t in panel['targets'])


def test_alerts_and_the_dashboard_ask_for_what_there_is():
    """Each metric and each label is one of METRICS.md; instance and job are Prometheus' own."""
    labels = dict(re.findall(r'^\| `(\w+)` \| \w+ \| (.*?) \|', (TOP / 'docs/METRICS.md').read_text(), re.M))
    seen = set()
    for expr in expressions():
        for name, matchers in re.findall(r'\b((?:agentd|istio_agent|process)_\w+)(\{[^}]*\})?', expr):
            known = name if name in labels else re.sub('_(bucket|sum|count)$', '', name)
            seen.add(known)
            allowed = {*labels[known].split(', '), 'instance', 'job', 'le'}
            asked = set(re.findall(r'(\w+)[!=]~?"', matchers)) | set(re.findall(r'\w+', ' '.join(re.findall(r'by \((.*?)\)', expr))))
            assert asked <= allowed, (expr, asked - allowed)
    assert len(seen) > 20


def test_no_command_upgrades_istiod_by_the_way():
    """`helm upgrade istiod` without --version takes the newest."""
    for file in (CHART / 'templates/NOTES.txt', *(TOP / 'docs').glob('*.md')):
        for line in file.read_text().splitlines():
            assert not re.search(r'upgrade istiod', line) or '--version' in line, (file, line)
