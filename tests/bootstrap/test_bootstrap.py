"""Our bootstraps are Istio's, but for a list with reasons, and Envoys take them."""
import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .cases import pods
from .differences import DIFFERENCES

TOP = Path(__file__).parents[2]
OURS = TOP / 'build/asan/tests/bootstrap/ours'
ISTIO = TOP / 'build/gobin/istio-bootstrap'
EACH_ENVOY = 60  # bootstraps; the first ones have one key each


def lines(program, *args, given):
    r = subprocess.run([program, *args], input='\n'.join(map(json.dumps, given)), text=True, capture_output=True, check=False, timeout=300)
    assert r.returncode == 0, r.stderr[-4000:]
    return [json.loads(line) for line in r.stdout.splitlines()]


def template():
    r = subprocess.run(['go', 'list', '-m', '-f', '{{.Dir}}', 'istio.io/istio'], text=True, capture_output=True, check=True,
                       cwd=TOP / 'tests/bootstrap/istio', env={**os.environ, 'GOFLAGS': '-mod=readonly'})
    return Path(r.stdout.strip()) / 'tools/packaging/common/envoy_bootstrap.json'


def key_of(item, index):
    """A list's item by its name, so that its place does not matter; a pattern by what it says."""
    if not isinstance(item, dict):
        return index
    if len(item) == 1 and set(item) & {'prefix', 'suffix', 'safe_regex'}:
        return json.dumps(item, sort_keys=True)
    return item.get('name') or item.get('tag_name') or index


def flat(value, path=''):
    """{path: leaf}"""
    if isinstance(value, dict) and value:
        pairs = value.items()
    elif isinstance(value, list) and value:
        pairs = ((key_of(v, i), v) for i, v in enumerate(value))
    else:
        return {path: value}
    return {p: leaf for k, v in pairs for p, leaf in flat(v, f'{path}/{k}').items()}


@pytest.fixture(name='made', scope='module')
def fixture_made():
    """[(pod, ours, {istio, ours} in one form)]"""
    asked = list(pods())
    ours = lines(OURS, given=asked)
    refused = [(p['env'], o['refused']) for p, o in zip(asked, ours) if 'refused' in o]
    assert not refused, refused[:3]
    both = lines(ISTIO, template(), given=[{**p, 'ours': o} for p, o in zip(asked, ours)])
    errors = [(b['error'], p) for p, b in zip(asked, both) if 'error' in b]
    assert not errors, errors[:3]
    return list(zip(asked, ours, both))


def test_all_is_as_istio_has_it(made):
    used, wrong = set(), {}
    for asked, _, both in made:
        istio, ours = flat(both['istio']), flat(both['ours'])
        for path in sorted(istio.keys() | ours.keys()):
            if istio.get(path, '-') == ours.get(path, '-'):
                continue
            listed = [d for d in DIFFERENCES if re.fullmatch(d, path)]
            used.update(listed)
            if not listed:
                wrong.setdefault(path, (istio.get(path, '-'), ours.get(path, '-'), asked['env']['PROXY_CONFIG']))
    assert not wrong, '\n'.join(f'{p}: Istio {i!r}, we {o!r}, for {c}' for p, (i, o, c) in list(wrong.items())[:60])
    assert used == set(DIFFERENCES), f'no difference any more: {set(DIFFERENCES) - used}'


@pytest.mark.parametrize('version', os.environ.get('ENVOYS', '').split())
def test_envoys_take_them(made, version, tmp_path):
    envoy = TOP / f'build/real/envoy-{version}/envoy/_bin/envoy'
    assert b'http_strip_fragment_from_path' not in envoy.read_bytes(), 'the flag that differences.py says nobody has'

    def validate(i):
        file = tmp_path / f'{i}.json'
        file.write_text(json.dumps(made[i][1]))
        r = subprocess.run([envoy, '--mode', 'validate', '--allow-unknown-static-fields', '-l', 'error', '--skip-deprecated-logs', '-c', file],
                           text=True, capture_output=True, check=False, timeout=60)
        # What a newer Istio sets is called a bug by older Envoys, which go on.
        good = r.returncode == 0 and (version == '1.36.2' or 'envoy bug' not in r.stderr)
        return good or (made[i][0], r.stderr[-500:])
    with ThreadPoolExecutor(2) as pool:
        bad = [v for v in pool.map(validate, range(0, len(made), -(-len(made) // EACH_ENVOY))) if v is not True]
    assert not bad, bad[:3]
