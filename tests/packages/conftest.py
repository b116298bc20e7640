"""The fixtures of the end-to-end tests, and what `make image` and `make deb` made."""
import os
from pathlib import Path

import pytest

from tests.e2e.conftest import *  # noqa: F403
from tests.e2e.run import TOP, sh

from .oci import Archive

BUILD = Path(os.environ.get('AGENTD_BUILD', TOP / 'build'))
VERSION = (TOP / 'VERSION').read_text().strip()
VERSION_TEXT = sh('make', '-s', '-C', TOP, 'version').strip()  # and the commit


@pytest.fixture(scope='session')
def archive():
    return Archive(BUILD / 'image' / f'agentd-{VERSION}.oci.tar')


@pytest.fixture(scope='session')
def sboms():
    return {arch: BUILD / 'image' / f'agentd-{VERSION}-{arch}.spdx.json' for arch in ('amd64', 'arm64')}
