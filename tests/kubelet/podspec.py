"""A pod as the API server has it: DIR/api/<uid>.json.

    {"uid", "name", "namespace", "service_account", "qos": "guaranteed" | "burstable" | "besteffort",
     "volumes": [{"name", "attributes": {...}, "read_only": true}], CSI volumes of our driver
     "containers": [{"argv": [...]}],   each sees the first volume at /mnt, in a mount namespace of its own
     "grace_s": 30, "deleted": true}            deleted: from now on it goes
"""
import contextlib
import json
import os


class PodSpec:
    def __init__(self, text):
        d = json.loads(text)
        self.uid, self.name = d['uid'], d['name']
        self.namespace, self.service_account = d['namespace'], d['service_account']
        self.qos = d.get('qos', 'besteffort')
        self.volumes = {v['name']: v for v in d.get('volumes', ())}
        self.containers = d.get('containers', [])
        self.grace_s = d.get('grace_s', 30)
        self.deleted = d.get('deleted', False)


def write(directory, **fields):
    """Renamed into place."""
    file = directory / f'{fields["uid"]}.json'
    new = file.with_suffix('.new')
    new.write_text(json.dumps(fields))
    new.rename(file)


class Api:
    """What is in the directory, read again when a file has changed."""

    def __init__(self, directory):
        self._directory, self._seen = directory, {}  # uid -> ((inode, time), spec)

    def pods(self):
        found = {}
        for name in os.listdir(self._directory):
            if name.endswith('.json'):
                with contextlib.suppress(FileNotFoundError):  # removed just now
                    found[name[:-5]] = self._read(name)
        self._seen = found
        return {uid: spec for uid, (_, spec) in found.items()}

    def _read(self, name):
        path = self._directory / name
        s = path.stat()
        old = self._seen.get(name[:-5])
        key = s.st_ino, s.st_mtime_ns
        return old if old and old[0] == key else (key, PodSpec(path.read_text()))

    def remove(self, uid):
        (self._directory / f'{uid}.json').unlink(missing_ok=True)
