"""Every key of agentd.yaml and every flag of agentd: what happens when it changes under pods that are served.

The names are those of common/flags.c and worker/config/planes.c, and test_settings.py fails for one that is not here.
"""
import re

from .run import TOP

NOTHING = 'nothing'                  # the pods go on
IGNORED = 'pods named as ignoring'   # agentctl pods POD lists the key that the pod says and the node does not
ABOVE = 'pods named in status'       # they go on with more than the node allows new ones
NEW = 'new pods only'                # the pods go on; another one is refused
NOT_READY = 'successor not ready'    # it cannot serve them: it must not take their agentd's place
COMMAND = 'no setting'               # what agentd is to do, and of no agentd that serves pods

FLAGS = {
    # agentd, or its command line
    'run': (None, NOT_READY), 'manifests': (None, NOT_READY), 'kubelet-root': (None, NOT_READY),
    'config': (None, NOT_READY), 'root-file': (None, NOT_READY), 'kubepods': (None, NOT_READY),
    'cgroup-root': (None, NOT_READY), 'redirect-cgroup': (None, NOT_READY), 'bpffs': (None, NOT_READY),
    'crl-file': (None, NOT_READY),
    'identity-dir': ('{dir}/identity.new', NOTHING), 'worker-user': ('1339', NOTHING), 'max-pods': ('1', NEW),
    'linger': (True, NOTHING), 'no-privsep': (True, NOTHING), 'probes-cgroup': ('{cgroup}', NOTHING),
    'redirect-allow': ('strict', ABOVE), 'metrics': ('127.0.0.1:19901', NOTHING), 'take-over': (None, COMMAND),
    'take-over-s': ('30', NOTHING), 'alive': ('{dir}/alive.new', NOTHING),
    'check': (None, COMMAND), 'connect': (None, COMMAND), 'redirect-uninstall': (None, COMMAND),
    'redirect-gate': (None, COMMAND), 'redirect-await': (None, COMMAND), 'check-state': (None, COMMAND),
    'version': (None, COMMAND), 'help': (None, COMMAND),
}
KEYS = {
    'log_level': ('info', NOTHING), 'log_json': (True, NOTHING), 'redirect': ('none', NOTHING),
    'node_name': ('renamed', NOTHING), 'host_ip': ('192.0.2.9', NOTHING), 'istio_namespace': ('mesh', NOTHING),
    'cluster_domain': ('other.local', NOTHING), 'ip_family': ('ipv6', NOTHING), 'secret_ttl_min_s': (5, NOTHING),
    'secret_ttl_max_s': (6, IGNORED), 'certificate_reissue_min_s': (2, NOTHING), 'certificate_linger_s': (0, NOTHING),
    'pcds': (True, NOTHING), 'ready_anyway': (True, NOTHING), 'certificate_scope': ('pod', NOTHING), 'csr_per_second': (1, NOTHING),
    'attest': ('require', NOTHING), 'state_keys': ('memory', NOTHING), 'redirect_policy': ('permissive', NOTHING),
    'redirect_accelerate': (None, NOT_READY), 'publish_wait_ms': (0, NOTHING), 'dns_upstream': ('192.0.2.53', NOTHING),
    'certificate_directories': ('/srv', NOTHING),
    'pod_connections': (8, NOTHING), 'pod_streams': (16, NOTHING), 'pod_message_mib': (2, NOTHING),
    'pod_memory_mib': (8, NOTHING), 'pods_memory_mib': (8, NOTHING), 'push_memory_mib': (8, NOTHING),
    'pod_queued_mib': (1, NOTHING), 'pod_requests_per_second': (10, NOTHING), 'pod_requests_burst': (20, NOTHING),
    'pods_requests_per_second': (50, NOTHING), 'pod_silent_s': (5, NOTHING), 'pod_header_kib': (8, NOTHING),
    'control_planes': (None, NOT_READY),
}
PLANE_KEYS = {
    'name': ('renamed', NOTHING), 'address': (None, NOT_READY), 'root': (None, NOT_READY), 'server_name': (None, NOT_READY),
    'trust_domain': (['moved.example', 'cluster.local'], NOTHING), 'cluster_id': ('prod-eu-1', IGNORED),
    'mesh_id': ('mesh-new', IGNORED), 'connections': (1, NOTHING), 'opens_per_second': (5, NOTHING),
    'opens_burst': (2, NOTHING), 'pod_opens_per_second': (2, NOTHING), 'pod_opens_burst': (2, NOTHING),
    'unread_stream_s': (5, NOTHING), 'hold_empty_push_s': (0, NOTHING),
}


def of_flags():
    """(flags of the broker, keys of the file), as the table of agentd has them."""
    text = (TOP / 'agentd/common/flags.c').read_text()
    rows = re.findall(r'(?m)^    (BROKER|BOTH|TEXT|NUMBER|\{)\(?\s*"([a-z-]+)"', text)
    assert len(rows) == len(re.findall(r'(?m)^    (?:BROKER|BOTH|TEXT|NUMBER)\(|^    \{"', text))
    return ({name for kind, name in rows if kind == 'BROKER'},
            {name.replace('-', '_') for kind, name in rows if kind != 'BROKER'})


def of_planes():
    text = (TOP / 'agentd/worker/config/planes.c').read_text()
    return set(re.findall(r'(?m)^    (?:TEXT|NUMBER)_ROW\(\s*([a-z_]+),', text))
