"""A node for pods that were injected.  One run of tests/e2e serves every file: a process has one."""
import pytest

from tests.e2e.conftest import make_node, this_run  # noqa: F401  pylint: disable=unused-import
from tests.e2e.csi import CsiNode


@pytest.fixture(name='node')
def fixture_node(make_node):  # noqa: F811  pylint: disable=redefined-outer-name
    return make_node(kind=CsiNode)
