"""Reads an OCI archive as the specification has it, and believes nothing: every digest and size is looked at."""
import gzip
import hashlib
import io
import json
import tarfile


class Archive:
    def __init__(self, path):
        self.path = path
        with tarfile.open(path) as tar:
            self._files = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}
        assert json.loads(self._files['oci-layout']) == {'imageLayoutVersion': '1.0.0'}
        top = json.loads(self._files['index.json'])
        assert top['schemaVersion'] == 2 and len(top['manifests']) == 1
        self.index_digest = top['manifests'][0]['digest']
        self.name = top['manifests'][0]['annotations']['org.opencontainers.image.ref.name']
        index = self._json(top['manifests'][0], 'index.v1+json')
        self._digests = {d['platform']['architecture']: d['digest'] for d in index['manifests']}
        self._manifests = {d['platform']['architecture']: self._json(d, 'manifest.v1+json') for d in index['manifests']}
        assert all(d['platform']['os'] == 'linux' for d in index['manifests'])

    def _blob(self, descriptor, kind):
        assert descriptor['mediaType'] == f'application/vnd.oci.image.{kind}'
        algorithm, _, digest = descriptor['digest'].partition(':')
        data = self._files[f'blobs/{algorithm}/{digest}']
        assert len(data) == descriptor['size'] and hashlib.new(algorithm, data).hexdigest() == digest
        return data

    def _json(self, descriptor, kind):
        value = json.loads(self._blob(descriptor, kind))
        assert value.get('mediaType', descriptor['mediaType']) == descriptor['mediaType']
        return value

    def architectures(self):
        return sorted(self._manifests)

    def digest(self, arch):
        """Of its manifest, by which it is pulled."""
        return self._digests[arch]

    def size(self, arch):
        """What a node downloads."""
        m = self._manifests[arch]
        return sum(d['size'] for d in (m['config'], *m['layers']))

    def config(self, arch):
        return self._json(self._manifests[arch]['config'], 'config.v1+json')

    def unpack(self, arch, directory):
        """The layers, one on the other; the members' names."""
        names, config = [], self.config(arch)
        assert (config['architecture'], config['os']) == (arch, 'linux')
        layers = self._manifests[arch]['layers']
        assert len(layers) == len(config['rootfs']['diff_ids'])
        for descriptor, diff_id in zip(layers, config['rootfs']['diff_ids']):
            data = gzip.decompress(self._blob(descriptor, 'layer.v1.tar+gzip'))
            assert diff_id == 'sha256:' + hashlib.sha256(data).hexdigest()
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                for member in tar:
                    assert member.isdir() or member.isfile(), member.name
                    assert not member.name.startswith(('/', '..', '.wh.')) and '/../' not in member.name
                    tar.extract(member, directory)
                    names.append(member.name)
        return names
