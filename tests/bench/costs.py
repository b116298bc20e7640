"""What costs.c counts.

Counts are instructions under callgrind: they do not depend on what else the machine does.
"""
import json
import re

from .tools import BROKER, COSTS, row, run

SIZES = {'1 KB': 1000, '100 KB': 100_000, '4 MB': 4_000_000}
P256, RSA_2048 = 0, 2  # enum x509_key_type


def instructions(*what):
    r = run('valgrind', '--tool=callgrind', '--callgrind-out-file=/dev/null', '--toggle-collect=measured', COSTS, *what)
    return int(re.search(r'Collected : (\d+)', r.stderr).group(1))


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


def broker():
    found = json.loads(run(BROKER).stdout)
    row('broker round trip', *found)
    for what in ('p50', 'p99'):
        row(f'  {what} us', *(f'{f[what]:.1f}' for f in found.values()))


def attest():
    row('looking at a known peer: CPU us', f'{int(run(COSTS, "attest").stdout) / 1000:.1f}')
