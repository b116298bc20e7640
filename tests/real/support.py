"""docs/SUPPORT.md: written by hand, but for the sections that a run of tests owns."""
import re

from tests.e2e.run import TOP

FILE = TOP / 'docs' / 'SUPPORT.md'


def _parts(heading):
    """What is before the section's text, that text, and what is after it."""
    return re.fullmatch(rf'(.*^#+ {re.escape(heading)}\n)(.*?)(^#.*|)', FILE.read_text(), re.M | re.S).groups()


def section(heading):
    return _parts(heading)[1]


def put(heading, text):
    """The section is `text` from now on."""
    before, _, after = _parts(heading)
    FILE.write_text(f'{before}\n{text.strip()}\n' + (f'\n{after}' if after else ''))
