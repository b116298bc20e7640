"""Instructions that a piece of work takes, counted by callgrind: the same on every machine, whatever else runs there.

    make work        what CPU and memory the dearest input of each limit takes on this machine, as the table of docs/LIMITS.md
"""
import datetime
import os
import re
import subprocess
import tempfile
from pathlib import Path

from . import cases, limits

TOP = Path(__file__).parents[2]
PAGE = TOP / 'docs/LIMITS.md'
BEGIN, END = '<!-- make work: from here -->\n', '<!-- make work: to here -->\n'
LARGEST = limits.MIB  # of what an operator sends, which may be more
ALLOWED = {'stranger': '20', 'owner': '100', 'operator': '1,000 for 20 MiB', 'operator, of manifests': '10,000 for 20 MiB'}
OF_CLOCK = 3_000_000  # instructions in a millisecond, of a core that is not the newest


def program(name):
    subprocess.run(['make', '-s', f'build/release/tests/work/{name}'], cwd=TOP, check=True, stdout=subprocess.DEVNULL)
    return TOP / 'build/release/tests/work' / name


def written(cases, directory):
    for i, (_, text) in enumerate(cases):
        (directory / str(i)).write_bytes(text)
    return [str(directory / str(i)) for i in range(len(cases))]


def instructions(name, cases, timeout=120):
    """{case: how many}."""
    cases = list(cases)
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        subprocess.run(['valgrind', '-q', '--tool=callgrind', '--toggle-collect=work_case', '--dump-after=work_case',
                        f'--callgrind-out-file={directory}/out', program(name), *written(cases, directory)],
                       check=True, timeout=timeout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        totals = [int(re.search(r'^totals: (\d+)', (directory / f'out.{i + 1}').read_text(), re.M)[1]) for i in range(len(cases))]
    return {case: n for (case, _), n in zip(cases, totals)}


def measured(name, cases):
    """{case: (ms of CPU, KiB, what it said)}; a process for each."""
    found, made = {}, program(name)
    with tempfile.TemporaryDirectory() as directory:
        for (case, _), path in zip(cases, written(cases, Path(directory))):
            run = subprocess.run([made, path], check=True, capture_output=True, text=True)
            us, kib = map(int, run.stdout.split())
            found[case] = us / 1000, kib, run.stderr.strip()
    return found


def dearest(program_, all_of):
    """(case, bytes, ms, KiB) of the one that takes most CPU."""
    sizes = {case: len(text) for case, text in all_of}
    case, (ms, kib, _) = max(measured(program_, all_of).items(), key=lambda x: x[1][0])
    return case, sizes[case], ms, kib


def rows():
    yield 'stranger', *dearest('status', list(cases.of_headers())), 1
    yield 'owner', *dearest('review', [*cases.reviews(), *cases.reviews(cases.ITEMS)]), 1
    for limit in limits.LIMITS:
        n = min(limit.most, LARGEST) if 'operator' in limit.who else limit.most
        case, size, ms, kib = dearest(f'of/{limit.target}', limit.inputs(n))
        yield limit.who, case, size, ms, kib, limit.reads


def table():
    date = datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%d %H:%M')
    text = f'{date} UTC, {os.cpu_count()} cores with a load of {os.getloadavg()[0]:.0f} before.\n\n'
    text += '| input | of | KiB | ms | allowed | KiB of memory |\n|---|---|---|---|---|---|\n'
    for who, case, size, ms, kib, reads in rows():
        text += f'| {case} | {who} | {size / 1024:,.0f} | {ms / reads:.1f} | {ALLOWED[who]} | {kib:,} |\n'
        print(text.splitlines()[-1], flush=True)
    return text


def main():
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f'{before}{BEGIN}{table()}{END}{rest.split(END)[1]}')


if __name__ == '__main__':
    main()
