"""Work has a bound, as bytes have: instructions of the largest inputs that docs/LIMITS.md lets in, counted, never timed."""
import os

import pytest

from tests.work import cases, count, limits

OF_STRANGERS, OF_OWNERS = 20 * count.OF_CLOCK, 100 * count.OF_CLOCK
SIZE, ONLY = (cases.POD, None) if os.environ.get('AGENTD_SOAK') else (cases.POD // 8, cases.WORST)


def most_of(counted):
    case = max(counted, key=counted.get)
    return case, counted[case]


def test_what_a_stranger_asks_of_a_pods_status_port():
    """60 KiB in each header that status.lua reads; all kinds of characters together take less than one of them may."""
    case, n = most_of(count.instructions('status', cases.of_headers()))
    assert n < OF_STRANGERS, case


def test_what_a_pods_owner_asks_of_the_injector():
    """Pods of more items than are taken, and of as many: no list is compared with itself."""
    taken = cases.reviews(cases.ITEMS, SIZE, ONLY)
    refused = cases.reviews(None, SIZE, ONLY and ('an own env', 'volumes of an annotation'))
    all_of = [*taken, *((f'{name}, as many as fit', text) for name, text in refused)]
    case, n = most_of(count.instructions('review', all_of))
    assert n < OF_OWNERS, case


ALLOWED = {'stranger': OF_STRANGERS, 'owner': OF_OWNERS, 'operator': 1000 * count.OF_CLOCK,
           'operator, of manifests': 10_000 * count.OF_CLOCK}  # an operator's for each 20 MiB
AT_ONCE = (128 if os.environ.get('AGENTD_SOAK') else 8) * limits.KIB
RATIO, OF_LITTLE = 2.5, count.OF_CLOCK  # less than a millisecond is noise of its beginning
WHO = tuple(ALLOWED) if os.environ.get('AGENTD_SOAK') else ('stranger', 'owner')


def at_its_bound(limit, half, whole, n):
    """What an input as large as the limit lets in costs, by what the second half of this one did."""
    return whole + (whole - half) * (limit.most - n) / (n / 2)


@pytest.mark.parametrize('target', limits.targets(*WHO))
def test_twice_as_much_costs_twice_as_much(target):
    """Nothing that a limit lets in is compared with itself, and at the limit it costs what its sender may cost."""
    sized = [(limit, *case) for limit in limits.targets(*WHO)[target] for case in limits.sized(limit, AT_ONCE)]
    counted = count.instructions(f'of/{target}', [('warm', sized[0][2]), *((f'{case}, half', half) for _, case, half, _ in sized),
                                                  *((case, whole) for _, case, _, whole in sized)], 600)
    for limit, case, _, text in sized:
        half, whole = counted[f'{case}, half'], counted[case]
        most = at_its_bound(limit, half, whole, min(limit.most, AT_ONCE)) / limit.reads
        allowed = ALLOWED[limit.who] * (max(1, limit.most / (20 * limits.MIB)) if 'operator' in limit.who else 1)
        assert whole < RATIO * half or whole < OF_LITTLE, (case, len(text), half, whole)
        assert most < allowed, (case, limit.most, most / count.OF_CLOCK)
