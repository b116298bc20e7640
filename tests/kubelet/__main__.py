"""python3 -m tests.kubelet run DIR | call SOCKET | sanity DIR SOCKET   (see __init__.py)"""
import argparse


def main():
    parser = argparse.ArgumentParser(prog='python3 -m tests.kubelet')
    verbs = parser.add_subparsers(dest='verb', required=True)
    verbs.add_parser('run', help='the kubelet').add_argument('dir')
    call = verbs.add_parser('call', help='calls from standard input')
    call.add_argument('socket')
    call.add_argument('--parallel', type=int, default=1, help='so many at a time')
    call.add_argument('--uid', type=int, default=0, help='of this user')
    beside = verbs.add_parser('sanity', help='what csi-sanity needs beside the driver')
    beside.add_argument('dir')
    beside.add_argument('socket')
    a = parser.parse_args()
    if a.verb == 'sanity':
        from . import controller
        controller.main(a.dir, a.socket)
    elif a.verb == 'run':
        from . import server
        server.main(a.dir)
    else:
        from . import client
        client.main(a.socket, a.parallel, a.uid)


main()
