"""SPDX 2.3 of an image: Debian packages and versions of what the linker took and of what lies beside it."""
import datetime
import hashlib
import json
import re


def _id(text):
    return 'SPDXRef-' + re.sub(r'[^A-Za-z0-9.-]', '-', text)


def _package(p):
    return {
        'SPDXID': _id(p.name), 'name': p.name, 'versionInfo': p.version,
        'supplier': 'Organization: Debian', 'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False,
        'sourceInfo': f'built from Debian source package {p.source} {p.source_version}',
        'externalRefs': [{
            'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl',
            'referenceLocator': f'pkg:deb/debian/{p.name}@{p.version.replace(":", "%3A")}?arch={p.arch}&distro=debian-12'}]}


def document(version, arch, epoch, packages):
    """`packages`: {how agentd is related to it: packages}; the document as bytes."""
    all_packages = sorted({p for group in packages.values() for p in group})
    digest = hashlib.sha256(repr((version, arch, all_packages)).encode()).hexdigest()[:32]
    related = [{'spdxElementId': 'SPDXRef-agentd', 'relationshipType': how, 'relatedSpdxElement': _id(p.name)}
               for how in packages for p in sorted(set(packages[how]))]
    return json.dumps({
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT',
        'name': f'agentd-{version}-{arch}',
        'documentNamespace': f'https://spdx.org/spdxdocs/agentd-{version}-{arch}-{digest}',
        'creationInfo': {
            'created': datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ'),
            'creators': ['Tool: agentd-helm-image']},
        'packages': [{
            'SPDXID': 'SPDXRef-agentd', 'name': 'agentd', 'versionInfo': version, 'downloadLocation': 'NOASSERTION',
            'filesAnalyzed': False, 'licenseDeclared': 'Apache-2.0', 'primaryPackagePurpose': 'CONTAINER'},
            *map(_package, all_packages)],
        'relationships': [
            {'spdxElementId': 'SPDXRef-DOCUMENT', 'relationshipType': 'DESCRIBES', 'relatedSpdxElement': 'SPDXRef-agentd'},
            *related]}, indent=1).encode() + b'\n'
