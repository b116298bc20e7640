"""python3 -m tests.real.kube.services KUBECONFIG DNS-ADDRESS   Services of a cluster of one node: rules instead of
kube-proxy, names instead of CoreDNS.

Follows Services and EndpointSlices.  After each change all rules are written anew, in one transaction of iptables-restore.
"""
import http.client
import ipaddress
import json
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

DOMAIN = 'svc.cluster.local'
PATHS = {'services': '/api/v1/services', 'slices': '/apis/discovery.k8s.io/v1/endpointslices'}
A, AAAA = 1, 28


class Api:
    def __init__(self, kubeconfig):
        with open(kubeconfig, encoding='utf-8') as file:
            config = json.load(file)
        cluster, user = config['clusters'][0]['cluster'], config['users'][0]['user']
        self._address = urlsplit(cluster['server']).netloc
        self._tls = ssl.create_default_context(cafile=cluster['certificate-authority'])
        self._tls.load_cert_chain(user['client-certificate'], user['client-key'])

    def get(self, path):
        connection = http.client.HTTPSConnection(self._address, context=self._tls)
        connection.request('GET', path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f'{path}: {answer.status}')
        return answer

    def follow(self, path, objects, changed):
        """Keeps `objects`, by (namespace, name), as the API server has them."""
        listed = json.load(self.get(path))
        objects.clear()
        objects.update((_key(item), item) for item in listed['items'])
        changed()
        for line in self.get(f'{path}?watch=1&resourceVersion={listed["metadata"]["resourceVersion"]}'):
            event = json.loads(line)
            if event['type'] == 'ERROR':
                return
            if event['type'] == 'DELETED':
                objects.pop(_key(event['object']), None)
            else:
                objects[_key(event['object'])] = event['object']
            changed()


def _key(item):
    return item['metadata']['namespace'], item['metadata']['name']


class Table:
    """What there is, as rules and as names."""

    def __init__(self):
        self.objects = {kind: {} for kind in PATHS}
        self._lock = threading.Lock()
        self._written = {}

    def _slices(self, namespace, name):
        return [s for (ns, _), s in list(self.objects['slices'].items())
                if ns == namespace and s['metadata'].get('labels', {}).get('kubernetes.io/service-name') == name]

    def _ready(self, namespace, name, family=None):
        """(address, ports by name) of each endpoint."""
        for part in self._slices(namespace, name):
            ports = {p.get('name') or '': p['port'] for p in part.get('ports') or []}
            for endpoint in part.get('endpoints') or []:
                if endpoint.get('conditions', {}).get('ready', True) and family in (None, part['addressType']):
                    for address in endpoint['addresses']:
                        yield address, ports

    def _rules(self, family):
        for (namespace, name), service in list(self.objects['services'].items()):
            for address in service['spec'].get('clusterIPs') or []:
                if address == 'None' or _family(address) != family:
                    continue
                for port in service['spec'].get('ports') or []:
                    at = f'-d {address} -p {port["protocol"].lower()} --dport {port["port"]}'
                    to = [(a, ports[port.get('name') or '']) for a, ports in self._ready(namespace, name, family)
                          if (port.get('name') or '') in ports]
                    for left, (a, p) in zip(range(len(to), 0, -1), to):
                        host = f'[{a}]' if ':' in a else a
                        chance = f'-m statistic --mode random --probability {1 / left:.5f}'
                        yield f'-A SERVICES {at} {chance} -j DNAT --to {host}:{p}'

    def write(self):
        with self._lock:
            for family, program in (('IPv4', 'iptables-restore'), ('IPv6', 'ip6tables-restore')):
                text = '\n'.join(['*nat', ':SERVICES -', *self._rules(family), 'COMMIT', ''])
                if text != self._written.get(family):
                    subprocess.run([program, '--noflush'], input=text, text=True, check=True)
                    self._written[family] = text

    def addresses(self, name):
        """None: no such name."""
        labels = name.lower().removesuffix('.').removesuffix('.' + DOMAIN).split('.')
        if not name.lower().rstrip('.').endswith('.' + DOMAIN) or len(labels) < 2:
            return None
        service = self.objects['services'].get((labels[-1], labels[-2]))
        if not service:
            return None
        if service['spec'].get('clusterIP') != 'None':
            return service['spec']['clusterIPs']
        pods = self._slices(labels[-1], labels[-2])
        named = [(e.get('hostname'), a) for s in pods for e in s.get('endpoints') or [] for a in e['addresses']]
        return [a for host, a in named if len(labels) == 2 or host == labels[0]]


def _family(address):
    return f'IPv{ipaddress.ip_address(address).version}'


def answer(query, table):
    """A DNS message for one, with all addresses of the family that is asked for."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    question, kind = query[12:at + 5], struct.unpack('!H', query[at + 1:at + 3])[0]
    found = table.addresses('.'.join(labels))
    family = {A: 4, AAAA: 6}.get(kind)
    packed = [ip.packed for ip in map(ipaddress.ip_address, found or []) if ip.version == family]
    records = b''.join(struct.pack('!HHHIH', 0xc00c, kind, 1, 5, len(p)) + p for p in packed)
    flags = 0x8580 | (3 if found is None else 0)
    return query[:2] + struct.pack('!HHHHH', flags, 1, len(packed), 0, 0) + question + records


def serve_names(address, table):
    server = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    while True:
        query, client = server.recvfrom(4096)
        try:
            server.sendto(answer(query, table), client)
        except (IndexError, UnicodeDecodeError, struct.error) as e:
            print(f'a query from {client}: {e}', flush=True)


def keep(api, path, objects, changed):
    while True:
        try:
            api.follow(path, objects, changed)
        except (OSError, ValueError, http.client.HTTPException) as e:
            print(f'{path}: {e}', flush=True)
        time.sleep(0.5)


def hook():
    for program in ('iptables', 'ip6tables'):
        subprocess.run([program, '-t', 'nat', '-N', 'SERVICES'], check=True)
        for chain in ('PREROUTING', 'OUTPUT'):
            subprocess.run([program, '-t', 'nat', '-A', chain, '-j', 'SERVICES'], check=True)


def main(kubeconfig, dns):
    subprocess.run(['ip', 'address', 'replace', dns, 'dev', 'lo'], check=True)
    hook()
    table, api = Table(), Api(kubeconfig)
    for kind, path in PATHS.items():
        threading.Thread(target=keep, args=(api, path, table.objects[kind], table.write), daemon=True).start()
    serve_names(dns, table)


if __name__ == '__main__':
    main(*sys.argv[1:])
