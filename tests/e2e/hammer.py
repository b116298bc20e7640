"""Clients of a pod's socket that connect without pause, as a pod full of Envoys would.

hammer.py COUNTS PATH...   connects, says the HTTP/2 preface, waits for SETTINGS, leaves; counts in COUNTS
"""
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

# Together they stay below what a pod may ask in a second (pod_requests_per_second, 100).
CLIENTS, PATIENCE_S, PAUSE_S = 3, 60, float(os.environ.get('HAMMER_PAUSE_S', '0.04'))
_PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + b'\0\0\0\x04\0\0\0\0\0'
_SETTINGS = 4


class Hammer:
    """`prefix`: an argv before its own, such as nsenter's."""

    def __init__(self, pod, *paths, prefix=()):
        from .run import Process, wait_for  # noqa: run as a script it has no package
        self._wait_for = wait_for
        self._counts = [pod.dir / f'hammer.{n}.json' for n in range(CLIENTS)]
        for file in self._counts:
            file.unlink(missing_ok=True)
        paths = paths or (pod.mount / 'socket', pod.mount / 'XDS')
        self._processes = [Process(
            [*prefix, *pod.netns.command(sys.executable, Path(__file__), file, *paths)],
            pod.dir / 'hammer.log', pod.cgroup) for file in self._counts]
        self.more(CLIENTS)

    def counts(self):
        each = [json.loads(f.read_text()) for f in self._counts]
        return {k: sum((c[k] for c in each), [] if k == 'why' else 0) for k in each[0]}

    def more(self, n=10):
        """Wait for n more connections of each client that were served."""
        def served():
            return [json.loads(f.read_text())['ok'] if f.exists() else 0 for f in self._counts]
        goal = [c + n for c in served()]
        self._wait_for(f'{n} more connections', lambda: all(c >= g for c, g in zip(served(), goal)))

    def stop(self):
        for process in self._processes:
            process.stop()
        return self.counts()


def _once(path):
    """ok, refused (nobody listens), reset (accepted, then left alone), late."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(PATIENCE_S)
        try:
            s.connect(path)
        except OSError as e:
            return 'refused', str(e)
        try:
            s.sendall(_PREFACE)
            head = b''
            while len(head) < 9:
                more = s.recv(9 - len(head))
                if not more:
                    return 'reset', 'end of file'
                head += more
        except TimeoutError:
            return 'late', 'nothing came'
        except OSError as e:
            return 'reset', str(e)
        return ('ok', '') if head[3] == _SETTINGS else ('reset', f'a frame of type {head[3]}')


def _run(file, paths):
    counts = {'ok': 0, 'refused': 0, 'reset': 0, 'late': 0, 'why': []}
    end = []
    signal.signal(signal.SIGTERM, lambda *_: end.append(True))  # not in the middle of a connection
    while not end:
        what, why = _once(paths[counts['ok'] % len(paths)])
        counts[what] += 1
        if why:
            counts['why'] = [*counts['why'], f'{time.strftime("%T")} {what}: {why}'][:10]
        with open(file + '.new', 'w') as f:
            json.dump(counts, f)
        os.rename(file + '.new', file)
        time.sleep(PAUSE_S)


if __name__ == '__main__':
    _run(sys.argv[1], sys.argv[2:])
