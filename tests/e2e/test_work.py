"""Work has a bound, as bytes have: instructions of the largest inputs that docs/LIMITS.md lets in, counted, never timed."""
import os

from tests.work import cases, count

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
