"""The registration directory (sections 5 and 6).

An entry appears -> it is wanted, with the time of its appearance; every second what is wanted is compared with what
is registered.  The same path with another time: deregistered now, registered at the next tick.  A failure is tried
again with back-off.
"""
import asyncio
import os
import stat
import time
from pathlib import Path

import grpc

from . import client, inotify
from .config import GET_INFO_S, NODE_GET_INFO_S, NOTIFY_S


class Refused(Exception):
    pass


class Plugins:
    def __init__(self, config, journal):
        self._config, self._journal = config, journal
        self._directory = Path(config.root) / 'plugins_registry'
        self._wanted, self._registered = {}, {}  # path -> when it appeared
        self._failures, self._not_before, self._busy = {}, {}, set()
        self.drivers = {}  # name -> (socket, registry entry)

    async def run(self):
        self._directory.mkdir(mode=0o750, exist_ok=True)
        inotify.watch(self._directory, self._event)
        for entry in sorted(os.listdir(self._directory)):
            self._event(entry, True)
        while True:
            await asyncio.sleep(self._config.plugin_tick_s)
            self._tick()

    def _event(self, name, there):
        path = self._directory / name
        if not there:
            self._wanted.pop(path, None)
        elif not name.startswith('.') and self._is_socket(path):
            self._wanted[path] = time.monotonic()

    def _is_socket(self, path):
        """Where a symlink leads to counts; what leads nowhere now is not looked at again."""
        try:
            if stat.S_ISSOCK(path.stat().st_mode):
                return True
            why = 'not a socket'
        except OSError as e:
            why = str(e)
        self._journal.write('registry', entry=path.name, ignored=why)
        return False

    def _tick(self):
        for path, since in list(self._registered.items()):
            if self._wanted.get(path) != since:
                self._deregister(path)
                return  # what is to be registered waits for the next tick
        for path, since in list(self._wanted.items()):
            if path in self._registered or path in self._busy or time.monotonic() < self._not_before.get(path, 0):
                continue
            self._busy.add(path)
            asyncio.ensure_future(self._try(path, since))

    def _deregister(self, path):
        del self._registered[path]
        for name in [n for n, (_, entry) in self.drivers.items() if entry == path]:
            del self.drivers[name]
            self._journal.write('deregistered', driver=name)

    async def _try(self, path, since):
        try:
            await self._register(path)
            self._registered[path] = since
            self._failures.pop(path, None)
        except (Refused, grpc.aio.AioRpcError) as e:
            n = self._failures[path] = self._failures.get(path, 0) + 1
            self._not_before[path] = time.monotonic() + self._config.entry_back_off(n)
            why = f'{e.code().name}: {e.details()}' if isinstance(e, grpc.aio.AioRpcError) else str(e)
            self._journal.write('not-registered', entry=path.name, why=why)
        finally:
            self._busy.discard(path)

    async def _register(self, path):
        info = await client.call(path, 'GetInfo', GET_INFO_S, registration=True)
        why = self._objection(info, path)
        node = None
        if not why:
            endpoint = info.endpoint or str(path)
            node = await client.call(endpoint, 'NodeGetInfo', NODE_GET_INFO_S)
            why = '' if node.node_id else 'NodeGetInfo: node_id is empty'
        if not why:
            self.drivers[info.name] = endpoint, path
        try:
            await client.call(path, 'NotifyRegistrationStatus', NOTIFY_S, {'plugin_registered': not why, 'error': why},
                              registration=True)
        except grpc.aio.AioRpcError:
            self.drivers.pop(info.name, None)
            raise
        if why:
            raise Refused(why)
        self._journal.write('registered', driver=info.name, node_id=node.node_id, entry=path.name)

    def _objection(self, info, path):
        if info.type != 'CSIPlugin':
            return f'type is {info.type!r}'
        if not any(v.startswith(('1.', 'v1.')) for v in info.supported_versions):
            return f'none of the versions {list(info.supported_versions)}'
        if info.name in self.drivers and self.drivers[info.name][1] != path:
            return f'{info.name} is registered already with an equal version'
        return ''
