"""The image as a machine of another Debian builds it: the same bytes."""
import os
import platform
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.e2e.conftest import measured
from tests.e2e.run import TOP

from .conftest import BUILD, VERSION_TEXT
from .test_image import digest

OTHER = 'trixie' if platform.freedesktop_os_release()['VERSION_CODENAME'] == 'bookworm' else 'bookworm'


@pytest.mark.skipif(not os.environ.get('AGENTD_SOAK'), reason='in make soak: two bare Debians, one inside the other, 600 MB')
@pytest.mark.timeout(3600)
def test_another_debians_machine_gives_the_same_bytes(archive):
    assert '.dirty' not in VERSION_TEXT, 'that machine has the commit alone'
    with tempfile.TemporaryDirectory(dir='/var/tmp', prefix='agentd-builder.') as room:
        subprocess.run([TOP / 'tests/tools/clean-room', OTHER, 'image'], check=True, timeout=3500,
                       env={'PATH': os.environ['PATH'], 'CLEAN_ROOM': room})
        # The two programs differ if they were not compiled alike, all of it if the mirrors have other packages by now.
        found = {file.name: digest(file) for file in (Path(room) / 'the sources/build/image').iterdir()}
    assert found == {file.name: digest(file) for file in (BUILD / 'image').iterdir()}
    measured.append(f'image, built on {OTHER}: sha256 {found[archive.path.name]}')
