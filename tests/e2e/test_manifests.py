"""Manifests come, change and go while agentd runs; a bad one harms nobody else."""

import time

import pytest

from . import mesh
from .conftest import start_pair
from .run import wait_for


def shown(node):
    return {p['uid']: p for p in node.agentd.ctl('pods')['pods']}


def refused(node):
    return {r['file'].rpartition('/')[2]: r['why'] for r in node.agentd.ctl('pods')['refused_manifests']}


def test_added_and_removed_live(node):
    node.agentd.start()
    assert not shown(node)
    one, two = node.pod('one'), node.pod('two')
    for pod in (one, two):
        pod.wait_served()
    wait_for('both to be shown', lambda: set(shown(node)) == {one.uid, two.uid})
    assert one.is_served()
    one.remove_manifest()
    wait_for('one to be gone', lambda: set(shown(node)) == {two.uid} and not one.mount.exists())
    assert two.is_served()
    one.write_manifest()
    one.wait_served()
    wait_for('it to be back', lambda: set(shown(node)) == {one.uid, two.uid})


def test_a_changed_environment_changes_the_bootstrap(node):
    pod = node.pod('one', env={'ISTIO_META_COLOUR': 'red'})
    node.agentd.start()
    pod.wait_served()
    assert pod.bootstrap()['node']['metadata']['COLOUR'] == 'red'
    pod.write_manifest(env={'ISTIO_META_COLOUR': 'blue'}, labels={'app': 'x'})
    wait_for('the change', lambda: pod.bootstrap()['node']['metadata'].get('COLOUR') == 'blue')
    assert pod.bootstrap()['node']['metadata']['LABELS'] == {'app': 'x'}


GRACE_S = 2  # worker/pods/manifest_dir.c: how long a manifest may be away


def test_an_editors_rename_keeps_the_mounted_directory(node):
    """vim renames the old file away before it writes the new one; an Envoy has the directory mounted."""
    pod = node.pod('one')
    node.agentd.start()
    pod.wait_served()
    for n in range(20):
        before, began = pod.mount.stat().st_ino, time.monotonic()
        pod.manifest_file.rename(pod.manifest_file.with_suffix('.yaml~'))
        is_there = pod.uid in shown(node)  # asked after the rename, so agentd has seen that
        pod.write_manifest(labels={'app': f'edited{n}'})
        wait_for('the change', lambda app=f'edited{n}': pod.bootstrap()['node']['metadata'].get('LABELS') == {'app': app})
        if time.monotonic() - began < GRACE_S:  # a machine that stood still for longer says nothing
            break
    assert is_there and pod.mount.stat().st_ino == before
    assert pod.is_served()


def test_a_token_of_istioctl_names_no_pod(node):
    pod = node.pod('machine', manifest=False)
    pod.write_token(uid=None)
    pod.write_manifest()
    node.agentd.start()
    pod.wait_served()
    assert pod.is_served()
    pod.write_token(uid='00000000-0000-4000-8000-000000000000')
    why = wait_for('the refusal', lambda: shown(node)[pod.uid]['token'].get('why_not'))
    assert 'pod uid' in why


BAD = {
    'not yaml': ('{\n', 2),
    'unknown key': ('uid: {uid}\nname: one\nnamespace: demo\nservice_account: one\ncolour: red\n', 5),
    'no identity': ('uid: {uid}\nname: one\nnamespace: demo\n', None),
    'other uid': ('uid: 00000000-0000-4000-8000-000000000000\nname: one\nnamespace: demo\nservice_account: one\n', None),
    'bad name': ('uid: {uid}\nname: one\nnamespace: De/mo\nservice_account: one\n', 3),
}


@pytest.mark.parametrize('kind', BAD)
def test_a_bad_manifest_is_refused_and_others_live_on(node, kind):
    good, bad = node.pod('good'), node.pod('one', manifest=False)
    node.agentd.start()
    good.wait_served()
    text, line = BAD[kind]
    bad.write_token()
    bad.write_manifest_text(text.replace('{uid}', bad.uid))
    why = wait_for('the refusal', lambda: refused(node).get(bad.manifest_file.name))
    if line:
        assert f': line {line}: ' in why
    status, said = node.agentd.ctl_text('pods')
    assert status == 1 and bad.manifest_file.name in said
    assert set(shown(node)) == {good.uid} and not bad.mount.exists()
    bad.write_manifest()
    bad.wait_served()
    wait_for('it to be taken', lambda: not refused(node) and len(shown(node)) == 2)


def test_a_pod_whose_manifest_turns_bad_is_served_as_before(node):
    client, server = start_pair(node)
    load = client.load(mesh.OUTBOUND)
    server.write_manifest_text('uid: [\n')
    wait_for('the refusal', lambda: refused(node))
    load.more(100)
    assert set(shown(node)) == {client.uid, server.uid}
    server.write_manifest(labels={'app': 'server'})
    wait_for('it to be taken', lambda: not refused(node))
    counts = load.stop()
    assert counts['failed'] == 0, counts


@pytest.mark.parametrize('env', [
    {'CA_ADDR': 'evil.example:15012'}, {'TRUST_DOMAIN': 'evil.td'}, {'ISTIO_META_CLUSTER_ID': 'else'},
    {'SECRET_GRACE_PERIOD_RATIO': '0.99'}, {'WORKLOAD_RSA_KEY_SIZE': '1024'}, {'XDS_ROOT_CA': '/etc/shadow'},
    {'PROXY_CONFIG': '{"discoveryAddress": "evil.example:15012"}'}], ids=lambda e: next(iter(e)))
def test_an_environment_out_of_bounds_refuses_the_pod(node, env):
    good, bad = node.pod('good'), node.pod('bad', env=env)
    node.agentd.plane['trust_domain'] = mesh.TRUST_DOMAIN
    node.agentd.start()
    good.wait_served()
    key = next(iter(env)) if 'PROXY_CONFIG' not in env else 'discoveryAddress'
    why = wait_for('the refusal', lambda: shown(node)[bad.uid]['why_not'])
    assert key in why, why
    assert not (bad.mount / 'socket').exists()
    bad.write_manifest(env={})
    bad.wait_served()
