"""An OCI image layout as one tar archive, written without a container engine.  The same input gives the same
bytes: names are in order, all files have one time, no user has a name, gzip's head has no time."""
import collections
import gzip
import hashlib
import io
import json
import tarfile

# A directory has no data.
Entry = collections.namedtuple('Entry', 'name mode data', defaults=[None])
TYPE = 'application/vnd.oci.image.'


def _tar(entries, epoch):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.USTAR_FORMAT) as tar:
        for entry in sorted(entries):
            info = tarfile.TarInfo(entry.name)
            info.mode, info.mtime = entry.mode, epoch
            if entry.data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.data)
            tar.addfile(info, io.BytesIO(entry.data or b''))
    return out.getvalue()


def _with_parents(entries):
    """These, and each directory above one of them that has no entry itself."""
    named = {e.name for e in entries}
    above = {'/'.join(parts[:n]) for parts in (e.name.split('/') for e in entries) for n in range(1, len(parts))}
    return [*entries, *(Entry(name, 0o755) for name in above - named)]


class Layout:
    def __init__(self, epoch, effort=9):
        self._epoch, self._effort, self._blobs = epoch, effort, {}

    def _add(self, media_type, data, **more):
        """A blob, and the descriptor that names it."""
        data = data if isinstance(data, bytes) else json.dumps(data, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[f'blobs/sha256/{digest}'] = data
        return {'mediaType': TYPE + media_type, 'digest': f'sha256:{digest}', 'size': len(data), **more}

    def image(self, arch, entries, settings, created):
        """The descriptor of an image that has one layer."""
        layer = _tar(_with_parents(entries), self._epoch)
        config = {
            'created': created, 'architecture': arch, 'os': 'linux', 'config': settings,
            'rootfs': {'type': 'layers', 'diff_ids': ['sha256:' + hashlib.sha256(layer).hexdigest()]},
            'history': [{'created': created, 'created_by': 'make image'}]}
        return self._add('manifest.v1+json', {
            'schemaVersion': 2, 'mediaType': TYPE + 'manifest.v1+json',
            'config': self._add('config.v1+json', config),
            'layers': [self._add('layer.v1.tar+gzip', gzip.compress(layer, self._effort, mtime=0))]},
            platform={'architecture': arch, 'os': 'linux'})

    def archive(self, images, name, annotations):
        """The bytes of the archive: one name, behind it one image for each architecture."""
        index = {'schemaVersion': 2, 'mediaType': TYPE + 'index.v1+json'}
        both = self._add('index.v1+json', {**index, 'manifests': images, 'annotations': annotations},
                         annotations={'org.opencontainers.image.ref.name': name})
        files = {'oci-layout': b'{"imageLayoutVersion":"1.0.0"}',
                 'index.json': json.dumps({**index, 'manifests': [both]}, sort_keys=True).encode(), **self._blobs}
        return _tar(_with_parents([Entry(path, 0o644, data) for path, data in files.items()]), self._epoch)
