"""Merged pages, read by what reads them in the field: Prometheus' own parsers, promtool, the Python client."""
import http.client
import os

import pytest

from tests.e2e import probed
from tests.e2e.test_status import SCRAPE, ask, of_app, scrape, start, use

from .programs import promtool, read
from .test_oracle import ISTIOS, PROMETHEUS, istios_server

BIG_MB = 100 if os.environ.get('AGENTD_SOAK') else 14
# What the app has -> the families of it that readers find.
PAGES = {'/text': ['app_x'], '/gzip': ['app_gzip'], '/brotli': [], '/500': [], '/204': [], '/empty': [],
         '/empty-chunks': [], '/openmetrics': ['app_o'], '/nothing': [], '/slow': []}


def series(answer):
    """How many Prometheus would store."""
    found = read(answer.body, answer.headers['content-type'])
    assert 'error' not in found, found
    return found['series']


def is_read(answer):
    """By promtool, too."""
    status, words = promtool(answer.body)
    assert status in (0, 3), words  # 3: it dislikes Envoy's names
    return series(answer)


@pytest.fixture
def pod(node):
    return start(node, ISTIO_PROMETHEUS_ANNOTATIONS=scrape((probed.HTTP, '/current'))).wait_ready()


def test_every_page_is_read(pod):
    use(pod, '/empty')
    envoys = is_read(ask(pod, SCRAPE, Accept=PROMETHEUS))
    assert envoys > 100
    for page, families in PAGES.items():
        use(pod, page)
        told = ask(pod, SCRAPE, Accept=PROMETHEUS, X_Prometheus_Scrape_Timeout_Seconds='1')
        assert of_app(told) == families, page
        assert is_read(told) >= envoys + len(families), page
    pod.app.kill()
    assert is_read(ask(pod, SCRAPE, Accept=PROMETHEUS)) >= envoys


def test_pages_of_several_targets_are_read(node):
    pod = start(node, ISTIO_PROMETHEUS_ANNOTATIONS=scrape(
        (probed.HTTP, '/current'), (8099, '/'), (probed.SECOND, '/openmetrics2'))).wait_ready()
    for page, families in (('/openmetrics', ['app_o', 'app_p']), ('/second', ['app_p', 'app_second']), ('/204', ['app_p']), ('/500', ['app_p'])):
        use(pod, page)
        told = ask(pod, SCRAPE, Accept=PROMETHEUS)
        assert of_app(told) == families and is_read(told), page


def test_a_large_page_is_read(pod):
    use(pod, f'/big?mb={BIG_MB}')
    assert series(ask(pod, SCRAPE, Accept=PROMETHEUS)) > BIG_MB * 2**20 // len(probed.BLOCK) * 3000


@pytest.mark.parametrize('page', ['/reset', '/endless'])
def test_a_page_that_breaks_off_is_no_scrape(pod, page):
    """Its client sees that, where pilot-agent ends a page that looks whole."""
    use(pod, page)
    with istios_server(pod, scrape((probed.HTTP, '/current'))):
        theirs = ask(pod, SCRAPE, port=ISTIOS, X_Prometheus_Scrape_Timeout_Seconds='1')
    assert theirs.status == 200 and 'error' not in read(theirs.body, theirs.headers['content-type'])
    with pytest.raises(http.client.IncompleteRead):
        ask(pod, SCRAPE, Accept=PROMETHEUS, X_Prometheus_Scrape_Timeout_Seconds='1')
