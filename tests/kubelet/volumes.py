"""The volume manager: what is wanted against what is there, ten times a second.

Per volume at most one operation runs.  publish OK -> mounted; an answer that may mean "still at it" -> uncertain
(it will be unpublished, should the pod go); any other error -> not mounted, and the empty target is removed.  Each
error doubles the wait before the next try.  A mounted volume is published again when the pod was synced.  The
reconstruction after a restart makes every volume on disk uncertain, so that it is published once.
"""
import asyncio
import json
import os
import time
from pathlib import Path

import grpc

from . import client, requests
from .config import CAPABILITIES_S, DRIVER

GONE, MOUNTED, UNCERTAIN = 'gone', 'mounted', 'uncertain'
_MAYBE = {'CANCELLED', 'DEADLINE_EXCEEDED', 'UNAVAILABLE', 'RESOURCE_EXHAUSTED', 'ABORTED'}
_PLUGIN = 'kubernetes.io~csi'


class NotRegistered(Exception):
    pass


def failure(e):
    """(code, text)"""
    if isinstance(e, grpc.aio.AioRpcError):
        return e.code().name, e.details() or ''
    return type(e).__name__, str(e)


def make_directories(path):
    """Each 0750, as the kubelet's are."""
    for folder in [p for p in (*reversed(path.parents), path) if not p.exists()]:
        folder.mkdir(mode=0o750)


class Volume:
    def __init__(self, manager, pod_uid, name, state=GONE):
        self._manager, self.pod_uid, self.name, self.state = manager, pod_uid, name, state
        self.folder = manager.pods / pod_uid / 'volumes' / _PLUGIN / name
        self.target = self.folder / 'mount'
        self.remount, self._reconstructed, self._left = False, state != GONE, False
        self.error, self._failures, self._not_before = '', 0, 0
        self._operation, self._last = None, None

    def step(self, pod):
        """pod: who wants it; None: nobody.  False: there is nothing left of it."""
        if self._operation:
            return True
        if pod and (self.state != MOUNTED or self.remount):
            self._try(self._publish, pod)
        elif not pod and self.state != GONE:
            self._try(self._unpublish)
        elif not pod and self._left:
            return False
        elif not pod:
            self._try(self._leave)
        return True

    def _try(self, operation, *args):
        """Unless this very operation has failed just now; another one begins with a back-off of its own."""
        if operation != self._last:
            self._last, self._failures, self._not_before = operation, 0, 0
        if time.monotonic() < self._not_before:
            return

        async def run():
            try:
                await operation(*args)
                self.error, self._failures = '', 0
            except (NotRegistered, OSError, grpc.aio.AioRpcError) as e:
                code, text = failure(e)
                self.error = f'{code}: {text}'
                self._failures += 1
                self._not_before = time.monotonic() + self._manager.config.back_off(self._failures)
                self._manager.journal.write('event', uid=self.pod_uid, volume=self.name, code=code, text=text)
            finally:
                self._operation = None
        self._operation = asyncio.ensure_future(run())

    async def _publish(self, pod):
        socket = self._manager.driver()
        make_directories(self.folder)
        (self.folder / 'vol_data.json').write_text(json.dumps({  # truncated, then written
            'attachmentID': '', 'driverName': DRIVER, 'nodeName': self._manager.config.node, 'specVolID': self.name,
            'volumeHandle': requests.volume_id(self.pod_uid, self.name), 'volumeLifecycleMode': 'Ephemeral'}))
        self.remount = False  # who asks for it from now on gets another one
        try:
            for _ in range(2):
                await client.call(socket, 'NodeGetCapabilities', CAPABILITIES_S)
            request = requests.publish(self._manager.config, self._manager.tokens, pod, pod.volumes[self.name], self.target)
            await self._call(socket, 'NodePublishVolume', request)
            self.state = MOUNTED
        except grpc.aio.AioRpcError as e:
            self.remount = True
            if self.state == MOUNTED:
                pass  # it stays, and so does the pod
            elif e.code().name in _MAYBE:
                self.state = UNCERTAIN
            else:
                self._remove_folder()
                self.state = UNCERTAIN if self._reconstructed else GONE
            raise

    async def _unpublish(self):
        request = requests.unpublish(self.pod_uid, self.name, self.target)
        await self._call(self._manager.driver(), 'NodeUnpublishVolume', request)
        self._remove_folder()
        self.state = GONE

    async def _leave(self):
        """It was never mounted."""
        self._remove_folder()
        self._left = True

    async def _call(self, socket, method, request):
        journal, start = self._manager.journal, time.time()
        journal.write(f'{method}-asked', uid=self.pod_uid, volume=self.name)
        code, text = 'OK', ''
        try:
            await client.call(socket, method, self._manager.config.publish_deadline_s, request)
        except grpc.aio.AioRpcError as e:
            code, text = failure(e)
            raise
        finally:
            journal.write(method, uid=self.pod_uid, volume=self.name, code=code, text=text, began=start)

    def _is_mounted(self):
        """The kubelet's own quick check: another device than its parent's."""
        return self.target.is_dir() and self.target.stat().st_dev != self.folder.stat().st_dev

    def _remove_folder(self):
        if not self.folder.exists():
            return
        if self._is_mounted():
            raise OSError(f'{self.target} is still mounted')
        if self.target.exists():
            os.rmdir(self.target)
        (self.folder / 'vol_data.json').unlink(missing_ok=True)
        os.rmdir(self.folder)


class Volumes:
    def __init__(self, config, journal, plugins):
        self.config, self.journal, self._plugins = config, journal, plugins
        self.pods = Path(config.root) / 'pods'
        self.tokens = requests.TokenCache(config)
        self._volumes = {}  # (uid, name) -> Volume
        self._wanted = {}   # the same -> pod

    def driver(self):
        if DRIVER not in self._plugins.drivers:
            raise NotRegistered(f'driver name {DRIVER} not found in the list of registered CSI drivers')
        return self._plugins.drivers[DRIVER][0]

    # What the pod workers ask for
    def want(self, pod):
        for name in pod.volumes:
            self._wanted[pod.uid, name] = pod

    def release(self, pod):
        for name in pod.volumes:
            self._wanted.pop((pod.uid, name), None)
        self.tokens.forget(pod.uid)

    def ready(self, pod):
        """All are mounted.  What was reconstructed counts: the pod runs with it."""
        return all(v and v.state == MOUNTED for v in (self._volumes.get((pod.uid, n)) for n in pod.volumes))

    def gone(self, uid):
        return not any(u == uid for u, _ in self._volumes)

    def synced(self, pod):
        if self.config.requires_republish:
            for name in pod.volumes:
                if volume := self._volumes.get((pod.uid, name)):
                    volume.remount = True

    def reconstruct(self):
        """From disk alone, as nothing else outlives the kubelet."""
        for data in self.pods.glob(f'*/volumes/{_PLUGIN}/*/vol_data.json'):
            if json.loads(data.read_text() or '{}').get('driverName') == DRIVER:
                uid, name = data.parts[-5], data.parts[-2]
                self._volumes[uid, name] = Volume(self, uid, name, UNCERTAIN)

    def states(self, uid):
        return {name: {'state': v.state, 'error': v.error} for (u, name), v in self._volumes.items() if u == uid}

    async def run(self):
        await asyncio.sleep(self.config.reconstruct_s)
        while True:
            for key in self._wanted.keys() - self._volumes.keys():
                self._volumes[key] = Volume(self, *key)
            for key, volume in list(self._volumes.items()):
                if not volume.step(self._wanted.get(key)):
                    del self._volumes[key]
            await asyncio.sleep(self.config.loop_s)
