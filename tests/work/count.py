"""Instructions that a piece of work takes, counted by callgrind: the same on every machine, whatever else runs there.

    build/venv/bin/python3 -m tests.work.count        what CPU and memory the dearest of them take on this machine, as a table
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).parents[2]
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


def main():
    from . import cases
    pods = [*cases.reviews(), *((f'{name}, {cases.ITEMS}', text) for name, text in cases.reviews(cases.ITEMS))]
    print(f'{"":60}{"ms":>8}{"KiB":>8}{"of":>8}')
    for name, all_of in ('status', list(cases.of_headers())), ('review', pods):
        sizes = {case: len(text) / 1024 for case, text in all_of}
        for case, (ms, kib, said) in sorted(measured(name, all_of).items(), key=lambda x: -x[1][0])[:8]:
            print(f'{name:8}{case:52}{ms:8.1f}{kib:8}{sizes[case]:8.0f}  {said[:60]}')


if __name__ == '__main__':
    main()
