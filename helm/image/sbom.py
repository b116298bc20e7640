"""SPDX 2.3 of an image: Debian packages and versions of what the linker took and of what lies beside it."""
import datetime
import hashlib
import json
import platform
import re
import urllib.parse

# Packages of another architecture are of this machine's release, too (helm/image/sysroot).
DISTRIBUTION = '{ID}-{VERSION_ID}'.format(**platform.freedesktop_os_release())


def _id(text):
    return 'SPDXRef-' + re.sub(r'[^A-Za-z0-9.-]', '-', text)


def _purl(p):
    """With the source, by which scanners find what is known of it."""
    name, version, source = (urllib.parse.quote(text, safe='') for text in (p.name, p.version, f'{p.source}@{p.source_version}'))
    return f'pkg:deb/debian/{name}@{version}?arch={p.arch}&distro={DISTRIBUTION}&upstream={source}'


def _licence(p):
    names = ', '.join(p.licences)
    return {'licenseDeclared': 'NOASSERTION', 'copyrightText': 'NOASSERTION',
            'licenseComments': f'names in Debian\'s copyright file of {p.name}: {names}' if names else
            f'see Debian\'s copyright file of {p.name}'}


def _package(p):
    return {
        'SPDXID': _id(p.name), 'name': p.name, 'versionInfo': p.version,
        'supplier': 'Organization: Debian', 'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False,
        'sourceInfo': f'built from Debian source package {p.source} {p.source_version}',
        'externalRefs': [{
            'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl',
            'referenceLocator': _purl(p)}], **_licence(p)}


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
            'filesAnalyzed': False, 'licenseDeclared': 'Apache-2.0',
            'licenseComments': 'the eBPF programs inside (ebpf/) are dual BSD/GPL', 'primaryPackagePurpose': 'CONTAINER'},
            *map(_package, all_packages)],
        'relationships': [
            {'spdxElementId': 'SPDXRef-DOCUMENT', 'relationshipType': 'DESCRIBES', 'relatedSpdxElement': 'SPDXRef-agentd'},
            *related]}, indent=1).encode() + b'\n'
