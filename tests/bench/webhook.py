"""What an admission costs: agentd-injector beside istiod's own injector, asked by kube-apiserver's own dispatcher.

    build/venv/bin/python3 -m tests.bench.webhook [ROUNDS]     (after make test-helm, which builds its programs)

The same pod, classic form, the same values.  istiod's is its webhook alone, without the rest of istiod, and without TLS sessions of others.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.injector import Injector
from tests.e2e.run import wait_for
from tests.helm.test_injection import INJECT, Istiod
from tests.helm.test_webhook import POD, Api, ours

TICKS = os.sysconf('SC_CLK_TCK')
TIMES = 2000


class Theirs(Injector):
    """istiod's, with our files."""

    def __init__(self, directory, istiod):
        super().__init__(directory, mode='release')
        self._istiod = istiod

    def argv(self):
        return [INJECT, '-config', self._istiod / 'config', '-values', self._istiod / 'values', '-serve', f'127.0.0.1:{self.port}',
                '-cert', self.tls.path / 'tls.crt', '-key', self.tls.path / 'tls.key']

    def is_ready(self):
        return self.get('/')[0] == 404


def cpu_s(pid):
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(directory, server, parallel):
    before = cpu_s(server.pid)
    api = Api(directory, server, ours(server))
    [r] = api.ask({}, args=['-times', TIMES, '-parallel', parallel])
    assert not r['failed'], r
    return {'p50': r['p50_ms'], 'p99': r['p99_ms'], 'cpu': (cpu_s(server.pid) - before) * 1000 / TIMES}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    os.environ['ENABLE_NATIVE_SIDECARS'] = 'false'
    with tempfile.TemporaryDirectory() as top:
        directory = Path(top)
        Istiod(directory)
        values = json.loads((directory / 'values').read_text())
        servers = {'agentd-injector': Injector(directory / 'ours', mode='release', config={'values': values, 'agentd': {'native': False}}),
                   'istiod': Theirs(directory / 'theirs', directory)}
        for s in servers.values():
            s.launch()
            wait_for('it', s.is_ready)
        idle = {name: s.memory_kib() / 1024 for name, s in servers.items()}
        print(f'{TIMES} admissions a round, {rounds} rounds in turn, the median of each; load {os.getloadavg()[0]:.1f}')
        print(f'{"":18}{"at a time":>10}{"p50 ms":>9}{"p99 ms":>9}{"CPU ms each":>13}{"RSS MiB before":>16}{"after":>8}{"patch B":>9}')
        for parallel in 1, 8:
            all_of = {name: [] for name in servers}
            for _ in range(rounds):
                for name, s in servers.items():
                    all_of[name].append(measure(directory, s, parallel))
            for name, s in servers.items():
                m = {k: statistics.median(r[k] for r in all_of[name]) for k in ('p50', 'p99', 'cpu')}
                size = len(json.dumps(s.patch(POD), separators=(',', ':')))
                print(f'{name:18}{parallel:10}{m["p50"]:9.2f}{m["p99"]:9.2f}{m["cpu"]:13.3f}{idle[name]:16.1f}{s.memory_kib() / 1024:8.1f}{size:9}')
        servers['agentd-injector'].remove()
        servers['istiod'].send(9)
        servers['istiod'].wait()


if __name__ == '__main__':
    try:
        main()
    except subprocess.SubprocessError as e:
        sys.exit(f'webhook: {e}')
