"""What a test sets, and the times of the contract.

All times are the kubelet's own, multiplied by `scale`, so that a test of minutes lasts seconds; but for those of
RPCs that are only there so that nobody waits for ever.
"""
import dataclasses
import json
import random
from pathlib import Path


@dataclasses.dataclass
class Config:
    root: str                        # the kubelet's directory: pods, plugins_registry
    cgroups: str                     # absolute: the pods' tree (".../kubepods" or ".../kubepods.slice")
    issuer: str                      # the directory of tests/istiod, whose tokens are given out
    node: str = 'node-1'
    cgroup_driver: str = 'cgroupfs'  # or systemd
    scale: float = 1.0
    token_ttl_s: int = 43200         # expirationSeconds of the CSIDriver object; not scaled
    audience: str = 'istio-ca'
    tokens_in_secrets: bool = True   # serviceAccountTokenInSecrets
    requires_republish: bool = True
    seed: int = 0
    publish_deadline_s: float = 120
    sync_s: float = 60               # syncFrequency; times 1..1.5
    loop_s: float = 0.1
    plugin_tick_s: float = 1
    back_off_s: float = 0.5
    back_off_max_s: float = 122
    entry_back_off_s: float = 0.5    # of one name in the registration directory
    state_change_s: tuple = (0.3, 1)
    pleg_s: float = 1                # how soon a changed container is noticed
    housekeeping_s: float = 2
    cgroup_gone_s: float = 0.186     # after the last unpublish
    reconstruct_s: float = 1         # from the start to the publish of every running pod's volume

    _SCALED = ('publish_deadline_s', 'sync_s', 'loop_s', 'plugin_tick_s', 'back_off_s', 'back_off_max_s', 'entry_back_off_s', 'pleg_s',
               'housekeeping_s', 'cgroup_gone_s', 'reconstruct_s')

    @classmethod
    def read(cls, directory):
        given = json.loads((Path(directory) / 'config.json').read_text())
        c = cls(**given)
        for name in cls._SCALED:
            if name not in given:  # what a test names is meant as it is
                setattr(c, name, getattr(c, name) * c.scale)
        c.random = random.Random(c.seed)
        return c

    def until_next_sync(self):
        return self.sync_s * self.random.uniform(1, 1.5)

    def until_state_is_synced(self):
        return self.random.uniform(*self.state_change_s) * self.scale

    def back_off(self, failures):
        return min(self.back_off_s * 2 ** (failures - 1), self.back_off_max_s)

    def entry_back_off(self, failures):
        return max(self.entry_back_off_s, min(self.entry_back_off_s * 2 ** (failures - 1), self.back_off_max_s))


DRIVER = 'agentd.node.mesh'
GET_INFO_S, NOTIFY_S, NODE_GET_INFO_S, CAPABILITIES_S = 1, 5, 120, 120
TOKEN_RENEWED_AT = 0.8
