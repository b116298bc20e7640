"""Prints what things cost.  Nothing passes or fails here; a thing that cannot be measured says why.

Counts are instructions under callgrind: they do not depend on what else the machine does.
"""
import os
import platform
import re
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
COSTS = TOP / 'build/release/tests/bench/costs'
SIZES = {'1 KB': 1000, '100 KB': 100_000, '4 MB': 4_000_000}
POD_COUNTS = (0, 10, 50)
P256, RSA_2048 = 0, 2  # enum x509_key_type


def run(*argv):
    r = subprocess.run([str(a) for a in argv], cwd=TOP, text=True, capture_output=True, check=False)
    if r.returncode:
        raise RuntimeError(f'{argv[0]}: exit status {r.returncode}: {r.stderr.strip()[-500:]}')
    return r


def build():
    COSTS.parent.mkdir(parents=True, exist_ok=True)
    # The fakes come first: they win over the library's modules.
    run('gcc', '-std=gnu11', '-O2', '-g', '-D_GNU_SOURCE', '-Ibuild/gen', '-o', COSTS, 'tests/bench/costs.c',
        'tests/fake/loop.c', 'tests/fake/rpc.c', 'build/release/libagentd.a', '-levent', '-lprotobuf-c', '-ljansson',
        '-lcrypto')


def instructions(*what):
    r = run('valgrind', '--tool=callgrind', '--callgrind-out-file=/dev/null', '--toggle-collect=measured', COSTS, *what)
    return int(re.search(r'Collected : (\d+)', r.stderr).group(1))


def row(label, *cells):
    print(f'{label:<46}' + ''.join(f'{c:>14}' for c in cells), flush=True)


def discovery():
    row('ADS response of', *SIZES)
    peek = [instructions('peek', n) for n in SIZES.values()]
    unpack = [instructions('unpack', n) for n in SIZES.values()]
    row('  agentd reads type, nonce, count: instructions', *(f'{n:,}' for n in peek))
    row('  protobuf-c unpacks it: instructions', *(f'{n:,}' for n in unpack))
    row('  ratio', *(f'{u / p:.1f}' for u, p in zip(unpack, peek)))


def secret():
    row('SDS request to answer (faked transport)', f'{instructions("sds"):,}')


def keys():
    p256, rsa = (int(run(COSTS, 'key', t).stdout) for t in (P256, RSA_2048))
    row('key and request: P-256, RSA 2048, ratio', f'{p256 / 1000:.2f} ms', f'{rsa / 1000:.0f} ms', f'{rsa / p256:.0f}')


def pss_kib(pid):
    return int(re.search(r'^Pss:\s+(\d+) kB', Path(f'/proc/{pid}/smaps_rollup').read_text(), re.M).group(1))


def memory():
    """Idle pods: manifest, token, sockets, and a certificate for each; no Envoy connected."""
    if os.geteuid() != 0:
        raise RuntimeError('needs root')
    from tests.e2e import run as e2e
    from tests.e2e.node import Node
    with e2e.run() as made:
        node, pss = Node(*made, mode='release'), []
        try:
            node.agentd.start()
            for count in POD_COUNTS:
                for i in range(len(node.pods), count):
                    node.pod(f'p{i}')
                e2e.wait_for(f'{count} certificates', lambda n=count: n == sum(
                    bool(c['serial']) for c in node.agentd.ctl('certs')['certificates']))
                pss.append(pss_kib(node.agentd.worker_pid()))
        finally:
            node.remove()
    row('idle pods, a certificate each', *POD_COUNTS)
    row('  PSS of the worker, KiB', *(f'{p:,}' for p in pss))
    row('  KiB for each pod of the last step', '', '', f'{(pss[2] - pss[1]) / (POD_COUNTS[2] - POD_COUNTS[1]):.0f}')


def machine():
    model = re.search(r'^model name\s*: (.*)$', Path('/proc/cpuinfo').read_text(), re.M)
    total = re.search(r'^MemTotal:\s+(\d+)', Path('/proc/meminfo').read_text(), re.M)
    print(f'machine: {model.group(1) if model else platform.machine()}, {os.cpu_count()} cores, '
          f'{int(total.group(1)) >> 20} GiB, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}')
    print('command: make bench')


def main():
    build()
    for measure in (discovery, secret, keys, memory):
        try:
            measure()
        except (RuntimeError, OSError, ValueError, AttributeError) as e:
            row(f'{measure.__name__}: not measured: {e}')
    machine()


if __name__ == '__main__':
    main()
