"""What a process holds while it sleeps until something happens.

At work the broker holds what it looks at, and its children hold what they close: a count of the two would depend on
the moment.
"""
import os
from pathlib import Path

EPOLL_WAIT = ('22', '232', '281', '441')  # by its number, on both architectures


def _sleeps(pid):
    """How often it has gone to sleep and is asleep; None: it is at work, or its children beside its worker are."""
    process = Path(f'/proc/{pid}')
    call = (process / 'syscall').read_text().split()[0]
    children = (process / 'task' / process.name / 'children').read_text().split()
    switches = [x for x in (process / 'status').read_text().splitlines() if 'ctxt_switches' in x]
    return switches if call in EPOLL_WAIT and len(children) == 1 else None


def open_fds(pid):
    """What is open, by number."""
    folder = f'/proc/{pid}/fd'
    return {int(fd): os.readlink(f'{folder}/{fd}') for fd in os.listdir(folder)}


def fds_of_broker(pid):
    """What it keeps open, with its worker as its only child; None: it was at work meanwhile."""
    before, found = _sleeps(pid), open_fds(pid)
    return found if before and before == _sleeps(pid) else None
