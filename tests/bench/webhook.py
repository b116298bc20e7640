"""What injection costs: agentd-injector beside istiod's own injector, asked by kube-apiserver's own dispatcher; agentctl; the policy.

    build/venv/bin/python3 -m tests.bench.webhook [ROUNDS]     (after make test-helm, which builds its programs)

The same pod, classic form, the same values.  istiod's is its webhook alone, without the rest of istiod, and without TLS sessions of others.
agentctl reads 1,000 manifests at once, and beside it istiod's own code as istioctl calls it (kube-inject).  The policies' cost is that of
the API server's own plug-ins for a pod that they select, less that for one that they do not.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.e2e.injector import Injector
from tests.e2e.run import wait_for
from tests.helm.test_engine import AGENTCTL
from tests.helm.test_injection import INJECT, Istiod, pod
from tests.helm.test_policy import POLICY, Policies, in_namespace
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


def of_a_run(argv, text, directory):
    """CPU in ms, and the most memory in MiB, of a program that reads this."""
    (file := directory / 'stdin').write_text(text)
    with open(file, 'rb') as given:
        p = subprocess.Popen([str(a) for a in argv], stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0, argv
    return (used.ru_utime + used.ru_stime) * 1000, used.ru_maxrss / 1024


def median_of(rounds, argv, text, directory):
    return [statistics.median(x) for x in zip(*(of_a_run(argv, text, directory) for _ in range(rounds)))]


DOCUMENTS, ADMISSIONS = 1000, 300


def programs(directory, rounds):
    """agentctl and istiod's code over manifests; the policies."""
    manifests = [json.dumps(pod()) for _ in range(DOCUMENTS)]
    config = directory / 'engine.json'
    config.write_text(json.dumps({'values': json.loads((directory / 'values').read_text())}))
    mine = median_of(rounds, [AGENTCTL, 'inject', '-f', '-', '--config', config], '\n---\n'.join(manifests), directory)
    lines = yaml.safe_dump_all([pod() for _ in range(DOCUMENTS)])
    in_yaml = median_of(rounds, [AGENTCTL, 'inject', '-f', '-', '--config', config], lines, directory)
    theirs = median_of(rounds, [INJECT, '-config', directory / 'config', '-values', directory / 'values'], '\n'.join(manifests), directory)
    for name, (cpu, mib) in (('agentctl, JSON', mine), ('agentctl, YAML', in_yaml), ("istiod's code, JSON", theirs)):
        print(f'{DOCUMENTS} manifests: {name:22}{cpu:9.0f} ms of CPU, {mib:6.1f} MiB at most')
    (directory / 'policies').mkdir()
    policies = Policies(directory / 'policies')
    asked, passed = (median_of(rounds, [POLICY, '-chain', policies.chain], '\n'.join(json.dumps(in_namespace(pod(), ns)) for _ in range(ADMISSIONS)),
                               directory)[0] for ns in ('demo', 'plain'))
    print(f'policies: {(asked - passed) / ADMISSIONS:.2f} ms of CPU for each pod, in the API server')


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
        programs(directory, rounds)
        servers['agentd-injector'].remove()
        servers['istiod'].send(9)
        servers['istiod'].wait()


if __name__ == '__main__':
    try:
        main()
    except subprocess.SubprocessError as e:
        sys.exit(f'webhook: {e}')
