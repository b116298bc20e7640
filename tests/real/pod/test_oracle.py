"""Istio's own status server and a pod's Envoy are asked the same, and answer the same.

What they answer otherwise stands here, each with its reason; more or less than that is a failure.
"""
import re
from typing import NamedTuple

import pytest

from tests.e2e import probed
from tests.e2e.run import Process, wait_for
from tests.e2e.test_status import AGENT, PROBERS, READY, SCRAPE, app, ask, scrape, start

from .programs import STATUS

ISTIOS = 15920
PROMETHEUS = ('application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,'
              'text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1')
KUBELET = {'User_Agent': 'kube-probe/1.36', 'Accept': '*/*', 'Connection': 'close'}


class Question(NamedTuple):
    """`source`: 'inside', 'outside' or an address of the pod's."""
    path: str
    method: str = 'GET'
    source: str = 'inside'
    headers: dict = {}

    def __str__(self):
        return ' '.join([self.method, self.path, self.source, *(f'{k}={v}' for k, v in self.headers.items())])


def everywhere(*paths, methods=('GET',)):
    return [Question(path, method, source) for path in paths for method in methods for source in ('inside', 'outside', '127.0.0.6')]


# The last: Envoy tells its clients to go elsewhere from then on; and then it ends.
COMMANDS = [Question(path, method, source, headers) for path in ('/drain', '/quitquitquit') for method, source, headers in (
    ('POST', 'outside', {}), ('POST', 'outside', {'X_Forwarded_For': '127.0.0.1'}), ('POST', '127.0.0.6', {}), ('GET', 'outside', {}),
    ('GET', 'inside', {}), ('PUT', 'inside', {}), ('POST', 'inside', {}))]
HOSTILE = ['//healthz/ready', '/healthz//ready', '/healthz/ready/', '/healthz/./ready', '/x/../healthz/ready', '/healthz/ready/../../drain',
           '/healthz%2fready', '/%68ealthz/ready', '/healthz/ready%00', '/healthz/ready;x', '/HEALTHZ/READY', '/', '/x', '*', '/stats', '/stats/',
           '/stats/prometheus/', '/config_dump', '/certs', '//quitquitquit', '/quitquitquit/', '/quitquitquit%2f', '/drain/../quitquitquit',
           'http://127.0.0.1:15000/healthz/ready', 'http://127.0.0.1:15000/config_dump', 'http://x//healthz/ready', '/metrics/../config_dump',
           '//metrics', '/%6detrics', app('ok') + '/', app('ok') + '/../../../drain', app('ok').replace('/app-', '//app-', 1),
           '/app-health/%61pp-ok/livez', '/app-health/app%2dok/livez', app('ok') + '?x=/../y', READY + '?x#y', READY + '#y']
QUESTIONS = [
    *everywhere(READY, methods=('GET', 'HEAD', 'POST', 'DELETE')),
    *everywhere(*HOSTILE), *everywhere('/healthz/ready/../../quitquitquit', '//quitquitquit', methods=('POST',)),
    *everywhere('/debug/ndsz', '/debug/pprof/', '/debug/pprof/cmdline'),
    *everywhere(SCRAPE, '/metrics', SCRAPE + '?usedonly&filter=server.state', methods=('GET', 'HEAD')), Question(SCRAPE, 'POST'),
    *(Question(SCRAPE, headers={'Accept': a}) for a in (PROMETHEUS, '*/*', 'application/json', 'text/*', 'a/b;;,,')),
    *(Question(SCRAPE, headers={'X_Prometheus_Scrape_Timeout_Seconds': t}) for t in ('10', '1.5', 'x', '')),
    *(Question(app(name), source=source, headers=KUBELET) for source in ('inside', 'outside') for name in (
        'ok', 'no', 'moved', 'slow', 'long', 'down', 'https', 'no-tls', 'grpc', 'grpc-good', 'grpc-bad', 'grpc-down', 'tcp', 'tcp-down', 'other')),
    *(Question(app('ok'), method, 'outside') for method in ('POST', 'PUT', 'HEAD')),
    *(Question(app('ok'), source='outside', headers=h) for h in (
        {'Host': 'foo'}, {'Host': 'foo:80'}, {'Host': '[::1]:80'}, {'X': 'y'}, {'Authorization': 'b'}, {'X_Forwarded_For': '1.2.3.4'},
        {'X_Request_Id': '1'}, {'X_Envoy_Original_Dst_Host': '127.0.0.1:15000'}, {'Accept_Encoding': 'gzip'}, {'Te': 'trailers'})),
    Question(app('ok', 'readyz')), *COMMANDS]

UNCLEAN = r'(//|/\.\.?/)'
# Which questions, their answer's status and ours (None: the same, but for header or body), why.
DIFFERENT = []
# Headers of answers that are not compared.
FRAMING = {'date': 'the time', 'server': 'Envoy says that it is one', 'content-length': "how a body's end is told", 'transfer-encoding': 'the same',
           'connection': 'the same'}
NUMBER = re.compile(rb' [^ ]+$')


def page(body):
    """A page of metrics without its numbers, and without those of pilot-agent's own."""
    lines = [line for line in body.split(b'\n') if b'istio_agent_' not in line]
    return sorted({NUMBER.sub(b'', line) if line.startswith(b'envoy_') else line for line in lines})


def paced(asked):
    """20 scrapes a second are answered, and no more."""
    return wait_for('a scrape', lambda: (told := asked()).status != 429 and told)


def answer(pod, stranger, question, port):
    source = {'inside': None, 'outside': stranger}.get(question.source, question.source)
    told = paced(lambda: ask(pod, question.path, question.method, port, source=source, **question.headers))
    headers = {k.lower(): v for k, v in told.headers.items() if k.lower() not in FRAMING}
    is_page = told.status == 200 and re.match(r'(/metrics|/stats/prometheus)(\?|$)', question.path)
    return told.status, headers, page(told.body) if is_page else told.body


@pytest.fixture
def both(node):
    """A pod with its Envoy on 15020 and Istio's server beside it; and another pod."""
    told = scrape((probed.HTTP, '/text'))
    pod = start(node, ISTIO_KUBE_APP_PROBERS=PROBERS, ISTIO_PROMETHEUS_ANNOTATIONS=told).wait_ready()
    log = pod.dir / 'status.log'
    Process(pod.netns.command('env', f'ISTIO_PROMETHEUS_ANNOTATIONS={told}', STATUS, 'serve', ISTIOS, pod.ip, PROBERS), log, pod.cgroup)
    wait_for("Istio's server", lambda: ask(pod, READY, port=ISTIOS).status == 200)
    return pod, node.pod('stranger'), log


def test_the_same_answers(both):
    pod, stranger, log = both
    for port in ISTIOS, AGENT, ISTIOS, AGENT:  # Envoy counts what it did: after this nothing is new
        ask(pod, SCRAPE, port=port)
    used, wrong = set(), []
    for question in QUESTIONS:
        theirs, ours = (answer(pod, stranger, question, port) for port in (ISTIOS, AGENT))
        row = next((r for r in DIFFERENT if re.fullmatch(r[0], str(question))), None)
        same = theirs == ours
        if row and not same and row[1] in (None, (theirs[0], ours[0])):
            used.add(row)
        elif not same:
            wrong.append((str(question), theirs, ours))
    assert not wrong, '\n'.join(f'{q}\n  {t}\n  {o}' for q, t, o in wrong)
    assert not set(DIFFERENT) - used, 'differences that are none'
    assert [w for w in log.read_text().splitlines() if w in ('drain', 'quit')] == ['drain', 'quit'] and pod.envoy.wait(20) == 0
