"""Istio's own status server and a pod's Envoy are asked the same, and answer the same.

What they answer otherwise stands here, each with its reason; more or less than that is a failure.
"""
import contextlib
import json
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
        {'X_Request_Id': '1'}, {'X_Forwarded_Proto': 'https'}, {'Cookie': 'c'}, {'X_Envoy_Original_Dst_Host': '127.0.0.1:15000'}, {'Accept_Encoding': 'gzip'}, {'Te': 'trailers'})),
    Question(app('ok', 'readyz')), *COMMANDS]

ANY, PROBER = r'(GET|HEAD|POST|PUT|DELETE)', r'/app-health/[^ ?]*'
AS_IT_IS = 'a path is compared as it is here; Go decodes it, and sends one that is not clean on to the clean one'
# Which questions; what Istio's server answers, and Envoy: statuses; why.
DIFFERENT = [
    (rf'{ANY} [^?]*(//|/\.\.?/).*', 307, 404, AS_IT_IS),
    (r'GET [^?]*%6[18d].*|GET /app-health/app%2dok.*', 200, 404, AS_IT_IS),
    (r'GET /healthz/ready#y .*', 404, 200, 'Envoy cuts off a fragment, which no client sends'),
    (rf'GET {PROBER}(other|ok/livez/).*|GET {app("ok", "readyz")} .*', 400, 404, 'no prober has this path'),
    (r'GET /debug/pprof/.* (inside|127.0.0.6)', 200, 404, "pilot-agent's own"),
    (r'GET /debug/.* outside', 403, 404, "pilot-agent's own"),
    (rf'POST {SCRAPE} .*', 200, 405, 'nobody scrapes so'),
    (rf'GET {PROBER}(slow|down|no-tls).*', 500, 500, 'Envoy says why'),
    (r'.* X_(Envoy_Original_Dst_Host|Forwarded_Proto)=.*', 200, 200, "Envoy's own headers are taken away"),
    (rf'GET {PROBER} .* Accept_Encoding=gzip', 200, 200, 'short answers are compressed, too'),
    (r'POST /(drain|quitquitquit) 127.0.0.6', 200, 403, 'Envoy passes strangers through from there'),
]
# The words of these are each server's own.
REFUSED = 400, 403, 404, 405
# Headers of answers that are not compared.
FRAMING = {'date': 'the time', 'server': 'Envoy says that it is one', 'content-length': "how a body's end is told", 'transfer-encoding': 'the same',
           'connection': 'the same', 'vary': 'what could be compressed', 'x-envoy-upstream-healthchecked-cluster': 'of a tcpSocket probe, which is a health check of Envoy'}
# Headers that the app is asked with, between it and who asks it.
HOP = {'connection', 'accept-encoding'}
NUMBER = re.compile(rb' [^ ]+$')


def page(body):
    """A page of metrics without its numbers, and without those of pilot-agent's own."""
    lines = [line for line in body.split(b'\n') if b'istio_agent_' not in line]
    return sorted({NUMBER.sub(b'', line) if line.startswith(b'envoy_') else line for line in lines})


def as_the_app_saw(body):
    seen = json.loads(body[2:])
    agent = {} if seen.get('user-agent', '').startswith('Go-http-client') else {'user-agent'}  # what Go says if nobody says anything
    return {k: v for k, v in seen.items() if k not in HOP and (k != 'user-agent' or agent)}


def paced(asked):
    """20 scrapes a second are answered, and no more."""
    return wait_for('a scrape', lambda: (told := asked()).status != 429 and told)


def answer(pod, stranger, question, port):
    """Status, headers, body; of a page without what is different each time."""
    source = {'inside': None, 'outside': stranger}.get(question.source, question.source)
    told = paced(lambda: ask(pod, question.path, question.method, port, source=source, **question.headers))
    headers = {k.lower(): v for k, v in told.headers.items() if k.lower() not in FRAMING}
    if told.status in REFUSED:
        return told.status, {}, b''
    if told.status == 200 and re.match(r'(/metrics|/stats/prometheus)(\?|$)', question.path):
        return told.status, headers, page(told.body)
    headers.pop('content-type', None)  # of a probe: Go guesses one, Envoy passes on the app's
    return told.status, headers, as_the_app_saw(told.body) if told.body.startswith(b'# {') else told.body


@contextlib.contextmanager
def istios_server(pod, scraped):
    """In the same pod; the file of what it says."""
    log = pod.dir / 'status.log'
    process = Process(pod.netns.command('env', f'ISTIO_PROMETHEUS_ANNOTATIONS={scraped}', STATUS, 'serve', ISTIOS, pod.ip, PROBERS), log, pod.cgroup)
    wait_for("Istio's server", lambda: ask(pod, READY, port=ISTIOS).status == 200)
    yield log
    process.kill()


@pytest.fixture
def both(node):
    """A pod with its Envoy on 15020 and Istio's server beside it; and another pod."""
    scraped = scrape((probed.HTTP, '/text'))
    pod = start(node, ISTIO_KUBE_APP_PROBERS=PROBERS, ISTIO_PROMETHEUS_ANNOTATIONS=scraped).wait_ready()
    with istios_server(pod, scraped) as log:
        yield pod, node.pod('stranger'), log


def test_the_same_answers(both):
    pod, stranger, log = both
    for port in ISTIOS, AGENT, ISTIOS, AGENT:  # Envoy counts what it did: after this nothing is new
        ask(pod, SCRAPE, port=port)
    used, wrong = set(), []
    for question in QUESTIONS:
        theirs, ours = (answer(pod, stranger, question, port) for port in (ISTIOS, AGENT))
        row = next((r for r in DIFFERENT if re.fullmatch(r[0], str(question))), None)
        same = theirs == ours
        if row and not same and row[1:3] == (theirs[0], ours[0]):
            used.add(row)
        elif not same:
            wrong.append((str(question), theirs, ours))
    assert not wrong, '\n'.join(f'{q}\n  {str(t)[:300]}\n  {str(o)[:300]}' for q, t, o in wrong)
    assert not set(DIFFERENT) - used, 'differences that are none'
    told = [w for w in log.read_text().splitlines() if w in ('drain', 'quit')]
    assert told == ['drain', 'drain', 'quit', 'quit'] and pod.envoy.wait(20) == 0  # from inside, and from 127.0.0.6
