"""A real Prometheus (tests/tools/promtool), the chart's rules and dashboard."""
import contextlib
import json
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from tests.e2e.run import Process

from .chart import CHART, TOP

RULES = CHART / 'files' / 'rules.yaml'
DASHBOARD = json.loads((CHART / 'files' / 'dashboard.json').read_text())


def expression(target):
    """Of all nodes."""
    return target['expr'].replace('$instance', '.*')


def panels():
    """(panel, expression of it)"""
    for panel in DASHBOARD['panels']:
        for target in panel['targets']:
            yield panel, expression(target)


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Prometheus:
    def __init__(self, port):
        self._api = f'http://127.0.0.1:{port}/api/v1'

    def ask(self, page, **query):
        """None: it does not answer (yet)."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f'{self._api}/{page}?{urllib.parse.urlencode(query)}', timeout=60) as r:
            return json.load(r)['data']
        return None


@contextlib.contextmanager
def prometheus(node, scraped, folder):
    """One that scrapes there each second, with the chart's rules."""
    promtool_path = subprocess.run([TOP / 'tests/tools/promtool'], capture_output=True, text=True, check=True).stdout.strip()
    config, port = folder / 'prometheus.yml', free_port()
    config.write_text(yaml.safe_dump({
        'global': {'scrape_interval': '1s', 'scrape_timeout': '1s', 'evaluation_interval': '1s'}, 'rule_files': [str(RULES)],
        'scrape_configs': [{'job_name': 'agentd', 'honor_labels': True, 'static_configs': [
            {'targets': [scraped], 'labels': {'instance': 'node-1'}}]}]}))
    process = Process([Path(promtool_path).with_name('prometheus'), f'--config.file={config}', f'--storage.tsdb.path={folder}/data',
                       f'--web.listen-address=127.0.0.1:{port}'], folder / 'prometheus.log', node.cgroup_of('prometheus'))
    try:
        yield Prometheus(port)
    finally:
        process.stop()
