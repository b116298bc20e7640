"""The bench's own programs, and what /proc says about the processes that are measured."""
import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get('AGENTD_BUILD', TOP / 'build'))
BIN = BUILD / 'release/tests/bench'
COSTS, LOAD, PLANE, BROKER = BIN / 'costs', BIN / 'load', BIN / 'plane', BIN / 'broker'
DIAL, CALLS, SETUP, PUBLISH, FLOOR, ANSWER, NOTHING = (
    BIN / name for name in ('dial', 'calls', 'setup', 'publish', 'floor', 'answer', 'nothing'))
SIZES = {'1 KiB': 1 << 10, '100 KiB': 100 << 10, '3 MB': 3_000_000, '20 MB': 20_000_000}


def run(*argv, **kw):
    r = subprocess.run([str(a) for a in argv], cwd=TOP, text=True, capture_output=True, check=False, **kw)
    if r.returncode:
        raise RuntimeError(f'{argv[0]}: exit status {r.returncode}: {r.stderr.strip()[-500:]}')
    return r


def build():
    BIN.mkdir(parents=True, exist_ok=True)
    flags = ('-std=gnu11', '-O2', '-g', '-D_GNU_SOURCE', f'-I{BUILD}/gen', '-iquote', 'agentd', '-iquote', '.')
    # What stands above another library comes before it (Makefile).
    lib, broker = ([BUILD / f'release/lib{name}.a' for name in names.split()] for names in ('worker rpc mesh base common', 'broker common'))
    # The fakes come first: they win over the library's modules.
    run('gcc', *flags, '-o', COSTS, 'tests/bench/costs.c', 'tests/fake/loop.c', 'tests/fake/rpc.c', *lib, '-levent',
        '-lprotobuf-c', '-ljansson', '-lcrypto')
    run('gcc', *flags, '-o', LOAD, *(f'tests/bench/{f}.c' for f in ('load', 'h2', 'xds', 'times')), *lib, '-levent', '-lssl',
        '-lcrypto')
    run('gcc', *flags, '-o', PUBLISH, *(f'tests/bench/{f}.c' for f in ('publish', 'h2', 'times')), *lib, '-levent', '-lssl',
        '-lcrypto', '-lpthread')
    run('gcc', *flags, '-o', BROKER, 'tests/bench/broker.c', *broker, '-lbpf')
    for program in DIAL, CALLS:
        run('gcc', *flags, '-o', program, f'tests/bench/{program.name}.c', 'tests/bench/times.c', *lib)
    for program in SETUP, NOTHING:
        run('gcc', *flags, '-o', program, f'tests/bench/{program.name}.c', 'tests/bench/times.c', *broker, '-lbpf')
    for program in PLANE, FLOOR, ANSWER:
        run('gcc', *flags, '-o', program, f'tests/bench/{program.name}.c', *lib, '-levent', '-lgrpc', '-lgpr', '-lpthread')


def load(*what, netns=None, enter=()):
    """What load.c found, run inside a network namespace (a path) if one is given, and by `enter`, a command that runs another."""
    inside = ('nsenter', f'--net={netns}') if netns else ()
    return json.loads(run(*inside, *enter, LOAD, *what, timeout=120).stdout)


def calls_during(pids, *what, netns=None):
    """The same, and the system calls of some processes meanwhile."""
    enter = ('nsenter', f'--net={netns}') if netns else ()
    with tempfile.NamedTemporaryFile('r') as counts:
        found = json.loads(run('perf', 'stat', '-x,', '-o', counts.name, '-e', 'raw_syscalls:sys_enter', '-p',
                               ','.join(map(str, pids)), *enter, LOAD, *what, timeout=120).stdout)
        return {**found, 'calls': int(re.search(r'^(\d+),', counts.read(), re.M)[1])}


def row(label, *cells):
    print(f'{label:<46}' + ''.join(f'{c:>14}' for c in cells), flush=True)


def median(found, key):
    return statistics.median(f[key] for f in found)


class Piped:
    """One of the bench's programs that serves until its input ends; `said` is its first line."""

    def __init__(self, *argv):
        self._popen = subprocess.Popen([str(a) for a in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid, self.said = self._popen.pid, json.loads(self._popen.stdout.readline())

    def line(self):
        """What the program does for a line of its input."""
        self._popen.stdin.write(b'\n')
        self._popen.stdin.flush()

    def stop(self):
        self._popen.stdin.close()
        self._popen.wait(10)


class Plane:
    """plane.c, with a certificate of its own."""

    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.root, key = directory / 'cert.pem', directory / 'key.pem'
        run('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
            '-subj', '/CN=istiod', '-addext', 'subjectAltName=DNS:istiod.istio-system.svc', '-keyout', key,
            '-out', self.root)
        self._program = Piped(PLANE, self.root, key)
        self.address = f'127.0.0.1:{self._program.said["port"]}'
        self.stop = self._program.stop


class Held:
    """`load hold`: pods that are connected and idle."""

    def __init__(self, how='', enter=()):
        self._popen = subprocess.Popen([*enter, LOAD, 'hold', how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._pods = self._back = 0

    def add(self, pairs):
        """(SDS socket, ADS socket) of each; returns when all have their certificates and configuration."""
        self._pods += len(pairs)
        for sds, ads in pairs:
            self._popen.stdin.write(f'{sds} {ads}\n')
        self.wait()

    def push(self, size):
        """To all of them at once; returns when each has it."""
        self._popen.stdin.write(f'push {size}\n')
        self.wait()

    def wait(self, again=False):
        """Until all have everything; `again`: each has come back, however often one had before."""
        wanted = self._back + self._pods if again else 0
        for line in self._popen.stdout:
            found = json.loads(line)
            if found['held'] == self._pods and found['back'] >= wanted:
                self._back = found['back']
                return
        raise RuntimeError(f'load hold: exit status {self._popen.wait(10)}')

    def stop(self):
        self._popen.stdin.close()
        self._popen.wait(10)


class Processes:
    """What some processes use, all their threads together."""

    def __init__(self, pids):
        self.pids = pids

    def _tasks(self, file):
        return [t.read_text() for pid in self.pids for t in Path(f'/proc/{pid}/task').glob(f'*/{file}')]

    def cpu_s(self):
        return sum(int(t.split()[0]) for t in self._tasks('schedstat')) / 1e9

    def switches(self):
        """Of threads that went to sleep: how often they were woken."""
        return sum(int(re.search(r'^voluntary_ctxt_switches:\s+(\d+)', t, re.M)[1]) for t in self._tasks('status'))

    def ticks(self):
        stats = [Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split() for pid in self.pids]
        return sum(int(s[11]) + int(s[12]) for s in stats)

    def memory_kib(self, what='Pss'):
        return sum(int(re.search(rf'^{what}:\s+(\d+) kB', Path(f'/proc/{pid}/smaps_rollup').read_text(), re.M)[1])
                   for pid in self.pids)

    def _status_kib(self, what):
        return sum(int(re.search(rf'^{what}:\s+(\d+) kB', Path(f'/proc/{pid}/status').read_text(), re.M)[1])
                   for pid in self.pids)

    def locked_kib(self):
        return self._status_kib('VmLck')

    def rss_kib(self):
        return self._status_kib('VmRSS')

    def forget_peak(self):
        for pid in self.pids:
            Path(f'/proc/{pid}/clear_refs').write_text('5')

    def peak_kib(self):
        return self._status_kib('VmHWM')
