"""The kubelet: one of each part, and DIR/state.json for the test, written anew whenever it has changed."""
import asyncio
import json
import os
import signal
import traceback
from pathlib import Path

from tests.istiod.journal import Journal

from .config import Config
from .plugins import Plugins
from .pods import Pods
from .podspec import Api
from .runtime import Runtime
from .volumes import Volumes


class Kubelet:
    def __init__(self, directory):
        self._directory = Path(directory)
        self.config, self.journal = Config.read(directory), Journal(directory)
        self.api, self.runtime = Api(self._directory / 'api'), Runtime(self._directory, self.config)
        self.plugins = Plugins(self.config, self.journal)
        self.volumes = Volumes(self.config, self.journal, self.plugins)
        self.pods = Pods(self)

    def network_ready(self):
        return not (self._directory / 'network-not-ready').exists()

    async def run(self):
        root = Path(self.config.root)
        for name in ('pods', 'plugins', 'plugins_registry'):
            (root / name).mkdir(mode=0o750, exist_ok=True)
        self.journal.write('kubelet', pid=os.getpid())
        self.volumes.reconstruct()
        asyncio.get_running_loop().set_exception_handler(_broken)
        await asyncio.gather(self.plugins.run(), self.pods.run(), self.volumes.run(), self._tell())

    async def _tell(self):
        told = None
        while True:
            state = json.dumps({
                'drivers': sorted(self.plugins.drivers),
                'pods': {uid: {'phase': w.phase, 'pause': self.runtime.sandbox(uid)[0], 'cgroup': str(w.cgroup),
                               'volumes': self.volumes.states(uid)} for uid, w in self.pods.workers.items()}})
            if state != told:
                new = self._directory / 'state.new'
                new.write_text(state)
                new.rename(self._directory / 'state.json')
                told = state
            await asyncio.sleep(self.config.loop_s)


def _broken(_, context):
    """What a task did not expect ends the kubelet: the test finds it in its log."""
    print(context['message'], flush=True)
    if error := context.get('exception'):
        traceback.print_exception(error)
    os._exit(1)


def main(directory):
    os.umask(0o022)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # containers are not its children in truth
    asyncio.run(Kubelet(directory).run())
