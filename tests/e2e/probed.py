"""An app with something to probe and to scrape: probed.py DIRECTORY.

HTTP on 8080 and 8081, TLS on 9443 (its certificate is made in DIRECTORY), gRPC's health service on 9000; on all addresses of both families.
Each path is a way to answer, see PAGES.
"""
import gzip
import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

HTTP, SECOND, TLS, GRPC = 8080, 8081, 9443, 9000
OPENMETRICS = 'application/openmetrics-text; version=1.0.0; charset=utf-8'
BLOCK = b''.join(b'app_big{n="%05d"} 1\n' % n for n in range(3000))
PARTS, PART = 20, BLOCK * 12
SERVING, NOT_SERVING, SERVED = b'\x08\x01', b'\x08\x02', {b'', b'\x0a\x04good'}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1

    def send(self, status, body=b'', **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace('_', '-'), value)
        if status != 204:
            self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command != 'HEAD' else b'')

    def chunks(self, blocks, end=True):
        self.send_response(200)
        self.send_header('transfer-encoding', 'chunked')
        self.send_header('content-type', 'text/plain')
        self.end_headers()
        for b in blocks:
            self.wfile.write(b'%x\r\n%s\r\n' % (len(b), b))
        self.wfile.write(b'0\r\n\r\n' if end else b'')

    def big(self):
        self.chunks([BLOCK] * (int(self.path.partition('=')[2]) * 2**20 // len(BLOCK)))

    def reset(self):
        self.send_response(200)
        self.send_header('content-length', '1000')
        self.end_headers()
        self.wfile.write(b'app_reset 1\n')
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def endless(self):
        """After a first MiB slowly; it ends when nobody listens."""
        self.chunks([BLOCK] * 20, end=False)
        while True:
            self.wfile.write(b'e\r\napp_endless 1\n\r\n')
            time.sleep(0.1)

    def parts(self):
        """14 MB, a part for each /permit."""
        def permitted():
            for _ in range(PARTS):
                permits.acquire(timeout=60)
                yield PART
        self.chunks(permitted())

    def hold(self):
        holding.append(self)
        held.wait(600)
        self.send(200, b'held')

    def seen(self):
        """What the app was asked, as a comment that is a valid page, too."""
        self.send(200, ('# %s\n' % json.dumps({'peer': self.client_address[0].removeprefix('::ffff:'), 'method': self.command, 'path': self.path,
                                               **{k.lower(): v for k, v in self.headers.items()}})).encode(), content_type='text/plain')

    def use(self):
        """/use?/page: what /current is from now on."""
        current[0] = self.path.partition('?')[2]
        self.send(200)

    def handle_any(self):
        if self.path == '/current':
            self.path = current[0]
        page = PAGES.get(self.path.partition('?')[0], lambda h: h.send(404))
        page(self)

    do_GET = do_HEAD = do_POST = handle_any

    def log_message(self, *_):
        pass


PAGES = {
    '/use': Handler.use,
    '/ok': Handler.seen,
    '/no': lambda h: h.send(503, b'not yet'),
    '/moved': lambda h: h.send(302, b'elsewhere', location='http://elsewhere/'),
    '/slow': lambda h: (time.sleep(30), h.send(200)),
    '/long': lambda h: h.send(200, b'x' * 20000),
    '/held': Handler.hold,
    '/holding': lambda h: h.send(200, b'%d' % len(holding)),
    '/permit': lambda h: (permits.release(), h.send(200)),
    '/release': lambda h: (held.set(), h.send(200)),
    '/text': lambda h: h.send(200, b'# TYPE app_x counter\napp_x 1\n', content_type='text/plain; version=0.0.4'),
    '/second': lambda h: h.send(200, b'app_second 2', content_type='text/plain'),
    '/openmetrics': lambda h: h.send(200, b'# TYPE app_o counter\napp_o_total 1\n# EOF\n', content_type=OPENMETRICS),
    '/openmetrics2': lambda h: h.send(200, b'# TYPE app_p counter\napp_p_total 1\n# EOF\n', content_type=OPENMETRICS),
    '/gzip': lambda h: h.send(200, gzip.compress(b'app_gzip 1\n'), content_type='text/plain', content_encoding='gzip'),
    '/brotli': lambda h: h.send(200, b'no text', content_type='text/plain', content_encoding='br'),
    '/500': lambda h: h.send(500, b'app_broken 1\n', content_type='text/plain'),
    '/204': lambda h: h.send(204),
    '/empty': lambda h: h.send(200, content_type='text/plain'),
    '/empty-chunks': lambda h: h.chunks([]),
    '/endless': Handler.endless,
    '/parts': Handler.parts,
    '/reset': Handler.reset,
    '/big': Handler.big,
}
held, holding = threading.Event(), []
permits = threading.Semaphore(0)
current = ['/text']


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 128


def serve(port, context=None):
    server = Server(('::', port), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def tls_context(directory):
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1',
                    '-subj', '/CN=app', '-keyout', f'{directory}/app.key', '-out', f'{directory}/app.crt'],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f'{directory}/app.crt', f'{directory}/app.key')
    return context


def serve_grpc():
    def check(request, _):
        return SERVING if request in SERVED else NOT_SERVING
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(
        'grpc.health.v1.Health', {'Check': grpc.unary_unary_rpc_method_handler(check)})])
    server.add_insecure_port(f'[::]:{GRPC}')
    server.start()
    return server


def main():
    serve(TLS, tls_context(sys.argv[1]))
    serve(SECOND)
    kept = serve_grpc()
    serve(HTTP)  # the last: who waits for it has all
    kept.wait_for_termination()


if __name__ == '__main__':
    main()
