"""The application in a pod.

app.py serve HOST PORT   an HTTP server that answers with the peer its Envoy saw (XFCC)
app.py load URL COUNTS   requests without pause; writes the counts to the file COUNTS, for ever
"""
import http.client
import http.server
import json
import os
import sys
import time
import urllib.parse


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1  # head and body in one packet, else each answer waits 40 ms for an ACK

    def do_GET(self):
        body = json.dumps({'path': self.path, 'xfcc': self.headers.get('x-forwarded-client-cert', '')}).encode()
        self.send_response(200)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def load(url, counts_file):
    """Every answer that is not 200 counts as failed; why is kept for the first few."""
    at = urllib.parse.urlsplit(url)
    counts = {'ok': 0, 'failed': 0, 'why': []}
    connection = None
    while True:
        try:
            connection = connection or http.client.HTTPConnection(at.hostname, at.port, timeout=60)
            connection.request('GET', at.path or '/')
            response = connection.getresponse()
            body = response.read()
            good, why = response.status == 200, f'{response.status} {body[:100]!r}'
        except (OSError, http.client.HTTPException) as e:
            good, why = False, f'{type(e).__name__}: {e}'
        if good:
            counts['ok'] += 1
        else:
            counts['failed'] += 1
            counts['why'] = [*counts['why'], f'{time.strftime("%T")} {why}'][:10]
        if not good or counts['ok'] % 50 == 0:
            connection.close()
            connection = None
        with open(counts_file + '.new', 'w') as f:
            json.dump(counts, f)
        os.rename(counts_file + '.new', counts_file)
        time.sleep(0.005)


if __name__ == '__main__':
    if sys.argv[1] == 'serve':
        Server((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()
    else:
        load(*sys.argv[2:4])
