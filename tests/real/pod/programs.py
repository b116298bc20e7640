"""Programs of others' packages, and how they are asked."""
import json
import subprocess

from tests.e2e.run import TOP

PROBER, STATUS, PROMTOOL = (TOP / 'build/real' / p for p in ('prober/prober', 'status/status', 'status/promtool'))


def read(page, content_type):
    """As Prometheus and Go's other programs read it: {'series': 3, 'families': 2}, or {'error': '...'}."""
    r = subprocess.run([STATUS, 'read', content_type], input=page, capture_output=True, check=True, timeout=120)
    return json.loads(r.stdout)


def promtool(page):
    """Its exit status and words: 0, 3 with advice about names, 1 for a page that it cannot read."""
    r = subprocess.run([PROMTOOL, 'check', 'metrics'], input=page, capture_output=True, check=False, timeout=120)
    return r.returncode, (r.stdout + r.stderr).decode()
