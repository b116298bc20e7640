"""Waiting for what a cluster says: each question is a program that starts, and its answer costs the whole node some work."""
import functools

from tests.e2e import run

wait_for = functools.partial(run.wait_for, pause_s=0.5)
