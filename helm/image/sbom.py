"""SPDX 2.3 of an image: Debian packages and versions of what the linker took and of what lies beside it."""
import collections
import datetime
import json
import platform
import re
import urllib.parse

# Packages of another architecture are of this machine's release, too (helm/image/sysroot).
DISTRIBUTION = '{ID}-{VERSION_ID}'.format(**platform.freedesktop_os_release())


# What the image of one architecture is called; `digest` is that of its manifest: sha256:...
Subject = collections.namedtuple('Subject', 'version text arch digest')
# What is compiled from the sources, and is under another licence than they are.
OURS = (('agentd-sources', 'agentd\'s programs', 'Apache-2.0', 'LICENSE'),
        ('agentd-ebpf', 'the eBPF programs inside (ebpf/)', 'BSD-2-Clause OR GPL-2.0-only', 'ebpf/LICENSE'),
        ('agentd-proto-csi', 'messages of container-storage-interface/spec 1.13', 'Apache-2.0', 'proto/NOTICE'),
        ('agentd-proto-envoy', 'messages of Envoy 1.40', 'Apache-2.0', 'proto/NOTICE'),
        ('agentd-proto-google', 'messages of protobuf 3.21', 'BSD-3-Clause', 'proto/NOTICE'),
        ('agentd-proto-istio', 'messages of istio/api 1.24', 'Apache-2.0', 'proto/NOTICE'),
        ('agentd-proto-pluginregistration', 'messages of the kubelet 1.36', 'Apache-2.0', 'proto/NOTICE'))


def _id(text):
    return 'SPDXRef-' + re.sub(r'[^A-Za-z0-9.-]', '-', text)


def purl(p):
    """With the source, by which scanners find what is known of it."""
    name, version, source = (urllib.parse.quote(text, safe='') for text in (p.name, p.version, f'{p.source}@{p.source_version}'))
    return f'pkg:deb/debian/{name}@{version}?arch={p.arch}&distro={DISTRIBUTION}&upstream={source}'


def _licence_id(p):
    return 'LicenseRef-Debian-' + re.sub(r'[^A-Za-z0-9.-]', '-', p.name)


def _licence(p):
    """Debian's copyright file of the package, whole: its words are not SPDX's."""
    return {'licenseId': _licence_id(p), 'name': f'the copyright file of Debian\'s package {p.name}', 'extractedText': p.copyright}


def _package(p):
    checksums = {'checksums': [{'algorithm': 'SHA256', 'checksumValue': p.sha256}]} if p.sha256 else {}
    return {
        'SPDXID': _id(p.name), 'name': p.name, 'versionInfo': p.version,
        'supplier': 'Organization: Debian', 'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False,
        'licenseDeclared': _licence_id(p), 'licenseConcluded': 'NOASSERTION', 'copyrightText': 'NOASSERTION', **checksums,
        'sourceInfo': f'built from Debian source package {p.source} {p.source_version}',
        'externalRefs': [{
            'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl',
            'referenceLocator': purl(p)}]}


def _image(s):
    """The image itself; its name has the digest of its manifest."""
    digest = urllib.parse.quote(s.digest, safe='')
    return {
        'SPDXID': 'SPDXRef-agentd', 'name': 'agentd', 'versionInfo': s.text, 'downloadLocation': 'NOASSERTION',
        'filesAnalyzed': False, 'licenseDeclared': 'Apache-2.0 AND (BSD-2-Clause OR GPL-2.0-only) AND BSD-3-Clause',
        'licenseConcluded': 'NOASSERTION', 'copyrightText': 'NOASSERTION', 'primaryPackagePurpose': 'CONTAINER',
        'checksums': [{'algorithm': 'SHA256', 'checksumValue': s.digest.removeprefix('sha256:')}],
        'externalRefs': [{'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl',
                          'referenceLocator': f'pkg:oci/agentd@{digest}?arch={s.arch}&tag={s.version}'}]}


def _ours(s, row):
    name, what, licence, file = row
    return {'SPDXID': _id(name), 'name': name, 'versionInfo': s.text, 'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False,
            'licenseDeclared': licence, 'licenseConcluded': licence, 'copyrightText': 'NOASSERTION', 'summary': what,
            'licenseComments': f'{file} of the sources; usr/share/doc/agentd/{file.replace("/", "-")} of the image'}


def document(s, epoch, packages):
    """Of a Subject; `packages`: {how agentd is related to it: packages}; the document as bytes."""
    all_packages = sorted({p for group in packages.values() for p in group})
    related = [('CONTAINS', name) for name, *_ in OURS] + [(how, p.name) for how in packages for p in sorted(set(packages[how]))]
    return json.dumps({
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT',
        'name': f'agentd-{s.version}-{s.arch}',
        'documentNamespace': f'https://spdx.org/spdxdocs/agentd-{s.version}-{s.arch}-{s.digest.removeprefix("sha256:")}',
        'creationInfo': {
            'created': datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ'),
            'creators': ['Tool: agentd-helm-image']},
        'packages': [_image(s), *(_ours(s, row) for row in OURS), *map(_package, all_packages)],
        'hasExtractedLicensingInfos': [_licence(p) for p in all_packages],
        'relationships': [
            {'spdxElementId': 'SPDXRef-DOCUMENT', 'relationshipType': 'DESCRIBES', 'relatedSpdxElement': 'SPDXRef-agentd'},
            *({'spdxElementId': 'SPDXRef-agentd', 'relationshipType': how, 'relatedSpdxElement': _id(name)}
              for how, name in related)]}, indent=1).encode() + b'\n'
