"""The fixtures of the end-to-end tests; programs of others' packages are in build/real (tests/tools/run-pod builds them)."""
from tests.e2e.conftest import *  # noqa: F403
