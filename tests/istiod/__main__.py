"""python3 -m tests.istiod serve|token|ctl --dir DIR ...   (see each one's --help)"""
import argparse
import asyncio
import json

from .control import order
from .tokens import AUDIENCE, Tokens


def parse(argv=None):
    parser = argparse.ArgumentParser(prog='python3 -m tests.istiod')
    verbs = parser.add_subparsers(dest='verb', required=True)
    serve = verbs.add_parser('serve', help='run the control plane; prints one JSON line when it listens')
    serve.add_argument('--listen', default='127.0.0.1:15012')
    serve.add_argument('--name', help='one more name of the server')
    serve.add_argument('--cluster-id', default='Kubernetes')
    serve.add_argument('--trust-domain', default='cluster.local')
    serve.add_argument('--intermediate', action='store_true', help='issue from an intermediate CA')
    serve.add_argument('--client-certificates', action='store_true', help='verify one if it is given')
    token = verbs.add_parser('token', help='print a service-account token')
    for name in ('--ns', '--sa', '--pod', '--uid'):
        token.add_argument(name, required=True)
    token.add_argument('--ttl', type=int, default=3600, help='seconds; negative: already expired')
    token.add_argument('--aud', default=AUDIENCE)
    ctl = verbs.add_parser('ctl', help='give one order (control.py lists them)')
    ctl.add_argument('order', help='a JSON object')
    for verb in (serve, token, ctl):
        verb.add_argument('--dir', required=True)
    return parser.parse_args(argv)


def main(argv=None):
    a = parse(argv)
    if a.verb == 'serve':
        from .server import Server  # what it imports takes a while
        server = Server(a.dir, a.cluster_id, a.intermediate, a.trust_domain, a.name,
                        a.client_certificates)
        asyncio.run(server.run(a.listen))
    elif a.verb == 'token':
        print(Tokens(a.dir).issue(a.ns, a.sa, a.pod, a.uid, a.ttl, a.aud))
    else:
        order(a.dir, **json.loads(a.order))


if __name__ == '__main__':
    main()
