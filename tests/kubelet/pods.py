"""The pod workers.  Per pod, in this order and never another (section 3a):

 starts: pod cgroup -> pod's directories -> wait for all volumes -> sandbox -> containers
 goes:   containers -> sandbox and its namespace -> volumes -> pod cgroup -> pod's directory -> the API's object

The volume manager is independent: it starts with a pod's volumes as soon as the pod is there, so a pod whose cgroup
waits for the network has its volumes published before.  A volume that is still being published does not keep the
cgroup of a pod that goes: the housekeeping takes it after 2 s.
"""
import asyncio
import contextlib
import json
import os
import signal
import time
from pathlib import Path

from .podspec import PodSpec

_QOS = {'guaranteed': '', 'burstable': 'burstable', 'besteffort': 'besteffort'}


def cgroup_of(tree, driver, qos, uid):
    """Section 3c: the pod's cgroup, and its parent."""
    tree, qos = Path(tree), _QOS[qos]
    if driver == 'systemd':
        parent = tree / f'kubepods-{qos}.slice' if qos else tree
        return parent / f'kubepods{"-" + qos if qos else ""}-pod{uid.replace("-", "_")}.slice'
    return (tree / qos if qos else tree) / f'pod{uid}'


class Worker:
    def __init__(self, kubelet, spec):
        self._k, self.spec, self.uid = kubelet, spec, spec.uid
        c = kubelet.config
        self.cgroup = cgroup_of(c.cgroups, c.cgroup_driver, spec.qos, spec.uid)
        self.directory = Path(c.root) / 'pods' / spec.uid
        self.phase, self.leaving = 'pending', False
        self._running = set()  # containers, when the pod was synced last

    def leave(self, spec=None):
        self.spec = spec or self.spec
        self.leaving = True

    def _say(self, phase):
        self.phase = phase
        self._k.journal.write('pod', uid=self.uid, phase=phase)

    async def _until(self, condition):
        while not self.leaving and not condition():
            await asyncio.sleep(self._k.config.loop_s)
        return not self.leaving

    async def run(self):
        await self._start()
        while not self.leaving:
            await self._sync()
        await self._end()

    async def _start(self):
        k = self._k
        k.volumes.want(self.spec)
        if not await self._until(k.network_ready):
            return
        self.cgroup.mkdir(parents=True, exist_ok=True)
        self._say('cgroup')
        for directory in (self.directory, self.directory / 'volumes', self.directory / 'plugins'):
            directory.mkdir(mode=0o750, exist_ok=True)
        if not await self._until(lambda: k.volumes.ready(self.spec)):
            return
        pid, _ = k.runtime.sandbox(self.uid)
        if pid:
            self._running = k.runtime.running(self.uid, self.cgroup)
        else:
            k.runtime.stop_sandbox(self.uid)
            k.runtime.start_sandbox(self.uid, self.cgroup)
            if not await self._until(lambda: k.runtime.has_netns(k.runtime.sandbox(self.uid)[0])):
                return
            for c in self.spec.containers:
                volume = self.directory / 'volumes/kubernetes.io~csi' / next(iter(self.spec.volumes)) / 'mount'
                k.runtime.start_container(self.uid, self.cgroup, c['argv'], volume)
        self._say('running')

    async def _sync(self):
        """Until the next time: soon after a container's state has changed, else once in a long while."""
        config, changed = self._k.config, False
        due = time.monotonic() + config.until_next_sync()
        while not self.leaving and time.monotonic() < due:
            await asyncio.sleep(min(config.pleg_s, max(due - time.monotonic(), 0)))
            running = self._k.runtime.running(self.uid, self.cgroup)
            if running != self._running and not changed:
                changed, due = True, time.monotonic() + config.until_state_is_synced()
            self._running = running
        if not self.leaving:
            self._k.volumes.synced(self.spec)

    async def _end(self):
        k, config = self._k, self._k.config
        self._say('leaving')
        late = time.monotonic() + self.spec.grace_s
        while not k.runtime.stop_containers(self.uid, self.cgroup, signal.SIGTERM):
            if time.monotonic() > late:
                k.runtime.stop_containers(self.uid, self.cgroup, signal.SIGKILL)
            await asyncio.sleep(config.loop_s)
        while not k.runtime.stop_sandbox(self.uid):
            await asyncio.sleep(config.loop_s)
        self._say('terminated')
        k.volumes.release(self.spec)
        late = time.monotonic() + config.housekeeping_s
        while not k.volumes.gone(self.uid) and time.monotonic() < late:
            await asyncio.sleep(config.loop_s)
        await asyncio.sleep(config.cgroup_gone_s)
        await self._remove_cgroup()
        while not k.volumes.gone(self.uid):
            await asyncio.sleep(config.loop_s)
        await asyncio.sleep(config.housekeeping_s)
        self._remove_directories()
        k.api.remove(self.uid)
        self._say('gone')

    async def _remove_cgroup(self):
        while self.cgroup.exists():
            with contextlib.suppress(OSError):
                self.cgroup.rmdir()
            await asyncio.sleep(self._k.config.loop_s)
        self._k.journal.write('pod', uid=self.uid, phase='no-cgroup')

    def _remove_directories(self):
        """Only what is empty: what somebody left behind stays, and is said."""
        for folder, _, _ in os.walk(self.directory, topdown=False):
            try:
                os.rmdir(folder)
            except OSError as e:
                self._k.journal.write('left-behind', uid=self.uid, path=folder, why=str(e))


class Pods:
    """Who is to have a worker: what the API has, and what is found on disk."""

    def __init__(self, kubelet):
        self._k, self.workers = kubelet, {}

    async def run(self):
        self._orphans(self._k.api.pods())
        while True:
            self._look(self._k.api.pods())
            await asyncio.sleep(self._k.config.loop_s)

    def _look(self, wanted):
        for uid, spec in wanted.items():
            if uid not in self.workers:
                self._add(Worker(self._k, spec))
            if spec.deleted and not self.workers[uid].leaving:
                self.workers[uid].leave(spec)
        for uid, worker in self.workers.items():
            if uid not in wanted and not worker.leaving:  # by force
                worker.leave()

    def _orphans(self, wanted):
        """Who was deleted by force while no kubelet was there."""
        for directory in (Path(self._k.config.root) / 'pods').iterdir():
            if directory.name not in wanted:
                nobody = {'uid': directory.name, 'name': '', 'namespace': '', 'service_account': ''}
                workers = [Worker(self._k, PodSpec(json.dumps({**nobody, 'qos': qos}))) for qos in _QOS]
                worker = next((w for w in workers if w.cgroup.exists()), workers[0])
                worker.leave()
                self._add(worker)

    def _add(self, worker):
        spec = worker.spec
        self.workers[spec.uid] = worker
        task = asyncio.ensure_future(worker.run())

        def ended(t):
            del self.workers[spec.uid]
            if not t.cancelled() and t.exception():
                raise t.exception()
        task.add_done_callback(ended)
