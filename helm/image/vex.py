"""OpenVEX of an image: for each CVE that is open of a library inside why it is none of agentd's, and which test says so."""
import datetime
import hashlib
import json
import urllib.parse
from pathlib import Path

from sbom import purl

FILE = Path(__file__).with_name('vex.json')


def inside(source, version, packages):
    """Those of the source that are of the version which somebody has looked at; a Debian version has an epoch before it, perhaps."""
    return sorted(p for group in packages.values() for p in group
                  if p.source == source and p.source_version.rpartition(':')[2].startswith(version))


def document(epoch, images):
    """`images`: (digest, packages as of sbom.document) each; the document as bytes.  ValueError: what is said is of another grpc.

    Of another version of another library nothing is said."""
    known, statements = json.loads(FILE.read_text()), []
    at = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
    for source, of in sorted(known.items()):
        # Scanners name an image by its digest.
        products = [{'@id': f'pkg:oci/agentd@{urllib.parse.quote(digest, safe="")}', 'hashes': {'sha-256': digest.removeprefix('sha256:')},
                     'subcomponents': [{'@id': purl(p)} for p in found]}
                    for digest, packages in images if (found := inside(source, of['version'], packages))]
        if source == 'grpc' and len(products) < len(images):
            raise ValueError(f'helm/image/vex.json is of grpc {of["version"]}, and another one is inside')
        if products:
            statements += [{'vulnerability': {'name': cve}, 'timestamp': at, 'products': products, 'status': 'not_affected', **why}
                           for cve, why in sorted(of['cves'].items())]
    return json.dumps({
        '@context': 'https://openvex.dev/ns/v0.2.0',
        '@id': 'https://openvex.dev/docs/public/vex-' + hashlib.sha256(json.dumps(statements).encode()).hexdigest(),
        'author': 'agentd maintainers', 'timestamp': at, 'version': 1, 'statements': statements}, indent=1).encode() + b'\n'
