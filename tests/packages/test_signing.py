"""The commands of docs/SECURITY.md that sign the image and attest what is in it, with the real cosign and a registry."""
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess

import pytest

from tests.e2e.run import TOP, wait_for

from .conftest import BUILD

pytestmark = pytest.mark.skipif(not os.environ.get('AGENTD_SOAK'), reason='in make soak: Go builds cosign once, in 5 to 20 min')
GOBIN = TOP / 'build/gobin'


@pytest.fixture(name='registry')
def fixture_registry(tmp_path):
    """Its address."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        address = f'127.0.0.1:{s.getsockname()[1]}'

    def answers():
        with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', int(address.rpartition(':')[2]))):
            return True
        return False
    with open(tmp_path / 'registry.log', 'wb') as log, subprocess.Popen(
            [GOBIN / 'registry', '-port', address.rpartition(':')[2]], stdout=log, stderr=log) as process:
        try:
            wait_for('the registry', answers)
            yield address
        finally:
            process.kill()


def documented():
    block = next(b for b in (TOP / 'docs/SECURITY.md').read_text().split('```')[1::2] if 'cosign sign' in b)
    sign, found, verify = block.partition('cosign verify ')
    assert found
    return sign, found + verify


def test_the_documents_commands_sign_attest_and_verify(registry, tmp_path, archive):
    sign, verify = documented()
    for name in ('VERSION', 'build/image'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(BUILD / 'image' if name == 'build/image' else TOP / name)
    containers = tmp_path / '.config/containers'
    containers.mkdir(parents=True)
    (containers / 'policy.json').write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (containers / 'registries.conf').write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    env = {'HOME': str(tmp_path), 'PATH': f'{GOBIN}:{os.environ["PATH"]}', 'COSIGN_PASSWORD': 'test',
           'CONTAINERS_REGISTRIES_CONF': str(containers / 'registries.conf')}

    def run(text):
        text = text.replace('registry.example', registry)
        return subprocess.run(['bash', '-euc', text], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=600, check=False)
    signed = run(f'{sign}\necho "digest=$digest"')
    assert signed.returncode == 0, signed.stderr
    digest = re.search(r'^digest=(sha256:[0-9a-f]{64})$', signed.stdout, re.M)[1]
    assert digest == archive.index_digest  # the registry has what was built, byte for byte
    known = f'digest={digest}\n'
    verified = run(known + verify)
    assert verified.returncode == 0 and 'signatures were verified against the specified public key' in verified.stderr, verified.stderr
    assert f'"docker-manifest-digest":"{digest}"' in verified.stdout
    assert json.loads(verified.stdout.splitlines()[-1])['payloadType'] == 'application/vnd.in-toto+json'
    # Another key has signed nothing.
    (tmp_path / 'other').mkdir()
    shutil.move(tmp_path / 'cosign.pub', tmp_path / 'other')
    (tmp_path / 'cosign.key').unlink()
    assert run('cosign generate-key-pair').returncode == 0
    assert run(known + verify.splitlines()[0]).returncode != 0
