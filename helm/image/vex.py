"""OpenVEX of an image: for each CVE of the grpc inside why it is none of agentd's, and which test says so."""
import datetime
import hashlib
import json
import urllib.parse
from pathlib import Path

from sbom import purl

FILE = Path(__file__).with_name('vex.json')


def document(epoch, images):
    """`images`: (digest, packages as of sbom.document) each; the document as bytes.  ValueError: what is said is of another grpc."""
    known, products = json.loads(FILE.read_text()), []
    for digest, packages in images:
        grpc = sorted(p for group in packages.values() for p in group if p.source == 'grpc')
        if not grpc or not grpc[0].source_version.startswith(known['grpc']):
            raise ValueError(f'helm/image/vex.json is of grpc {known["grpc"]}, and inside is {grpc and grpc[0].source_version}')
        # Scanners name an image by its digest.
        products.append({'@id': f'pkg:oci/agentd@{urllib.parse.quote(digest, safe="")}', 'hashes': {'sha-256': digest.removeprefix('sha256:')},
                         'subcomponents': [{'@id': purl(p)} for p in grpc]})
    at = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
    statements = [{'vulnerability': {'name': cve}, 'timestamp': at, 'products': products, 'status': 'not_affected', **why}
                  for cve, why in sorted(known['not_affected'].items())]
    return json.dumps({
        '@context': 'https://openvex.dev/ns/v0.2.0',
        '@id': 'https://openvex.dev/docs/public/vex-' + hashlib.sha256(json.dumps(statements).encode()).hexdigest(),
        'author': 'agentd maintainers', 'timestamp': at, 'version': 1, 'statements': statements}, indent=1).encode() + b'\n'
