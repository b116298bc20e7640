"""WorkloadGroups, and the WorkloadEntries that come of streams: to the letter of bare-metal-identity.md 4 and 5.

The first request of a stream registers; the entry goes a grace after the node's last stream.  What happens to entries is in
the journal (`entry`), what they are now in DIR/entries.json.
"""
import asyncio
import datetime
import json
from pathlib import Path

import grpc

GROUP = 'istio.io/autoRegistrationGroup'
CONTROLLER = 'istio.io/workloadController'
CONNECTED, DISCONNECTED = 'istio.io/connectedAt', 'istio.io/disconnectedAt'
PROBED = 'proxy.istio.io/health-checks-enabled'
NAME_MAX = 253


class Failed(Exception):
    """A stream ends with it."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


def _now():
    return datetime.datetime.now(datetime.UTC).isoformat().replace('+00:00', '000Z')


def entry_name(group, node):
    metadata = node['metadata']
    name = f'{group}-{_address(node).replace(":", "-")}'
    if network := metadata.get('NETWORK'):
        name += f'-{network}'
    return name[-NAME_MAX:]


def _address(node):
    return node['metadata'].get('INSTANCE_IPS', '').split(',')[0] or node['id'].split('~')[1]


def make_entry(group, node):
    """What istiod makes of a group and a node, but for the times."""
    metadata, template = node['metadata'], group.get('template', {})
    labels = {**template.get('labels', {}), **group.get('labels', {}), **metadata.get('LABELS', {})}
    labels.pop('istio-locality', None)
    spec = {**template, 'address': _address(node), 'labels': labels}
    if network := metadata.get('NETWORK'):
        spec['network'] = network
    if locality := node.get('locality'):
        spec['locality'] = locality
    annotations = {**group.get('annotations', {}), GROUP: group['name']}
    if metadata.get('PROXY_CONFIG', {}).get('readinessProbe'):
        annotations[PROBED] = 'true'
    return {'name': entry_name(group['name'], node), 'namespace': group['namespace'], 'annotations': annotations, 'spec': spec,
            'owner': {'kind': 'WorkloadGroup', 'name': group['name'], 'controller': True}, 'conditions': {}}


class Registration:
    grace_s = 10
    controller = 'istiod-1'

    def __init__(self, directory, journal):
        self._file = Path(directory) / 'entries.json'
        self._journal = journal
        self._groups = {}  # (namespace, name) -> group
        self._entries = {}  # the same -> entry
        self._nodes = {}  # streams with a group -> (node, who)
        self._streams = {}  # the same -> streams of its node
        self._ending = {}  # the same -> the task of its grace

    def group(self, namespace, name, **more):
        """Open streams of its machines are registered now."""
        self._groups[namespace, name] = {'namespace': namespace, 'name': name, **more}
        for stream, (node, who) in list(self._nodes.items()):
            if not stream.registered:
                self.connect(stream, node, who)

    def group_gone(self, namespace, name):
        """Its entries go with it, as they are owned by it."""
        del self._groups[namespace, name]
        for at, entry in list(self._entries.items()):
            if at[0] == namespace and entry['annotations'].get(GROUP) == name:
                for stream in self._streams.pop(at, ()):
                    stream.registered = None
                del self._entries[at]
                self._tell('deleted', at)

    def entry(self, namespace, name, **more):
        """One that an operator made."""
        self._entries[namespace, name] = {
            'name': name, 'namespace': namespace, 'annotations': {}, 'spec': {}, 'conditions': {}, **more}
        self._tell('made', (namespace, name))

    def _tell(self, how, at):
        self._journal.write('entry', how=how, namespace=at[0], name=at[1], entry=self._entries.get(at))
        new = self._file.with_suffix('.new')
        new.write_text(json.dumps(list(self._entries.values())))
        new.rename(self._file)

    def connect(self, stream, node, who):
        """Of the first request; where it is registered, or None."""
        metadata = node['metadata']
        if group := metadata.get('AUTO_REGISTER_GROUP'):
            at = self._register(group, node, who)
            self._nodes[stream] = node, who
        elif name := metadata.get('WORKLOAD_ENTRY'):
            at = self._find(name, node)
        else:
            return
        if at is None:
            return
        if task := self._ending.pop(at, None):
            task.cancel()
        self._streams.setdefault(at, set()).add(stream)
        entry = self._entries[at]
        entry['annotations'] |= {CONTROLLER: self.controller, CONNECTED: _now()}
        entry['annotations'].pop(DISCONNECTED, None)
        stream.registered = at
        self._tell('connected', at)

    def _register(self, name, node, who):
        ns = node['metadata'].get('NAMESPACE', '')
        group = self._groups.get((ns, name))
        if not group:
            raise Failed(grpc.StatusCode.FAILED_PRECONDITION,
                         f'auto-registration WorkloadEntry of {node["id"].split("~")[2]} failed: cannot find WorkloadGroup {ns}/{name}')
        entry = make_entry(group, node)
        self._check_identity(entry, who)
        at = ns, entry['name']
        if at not in self._entries:
            self._entries[at] = entry
            self._tell('created', at)
        return at

    @staticmethod
    def _check_identity(entry, who):
        wanted, account = entry['spec'].get('serviceAccount'), who['serviceaccount']['name']
        if entry['namespace'] != who['namespace']:
            raise Failed(grpc.StatusCode.UNKNOWN, 'registration of WorkloadEntry namespace mismatch: '
                         f'"{who["namespace"]}" vs "{entry["namespace"]}"')
        if wanted and wanted != account:
            raise Failed(grpc.StatusCode.UNKNOWN,
                         f'registration of WorkloadEntry service account mismatch: "{account}" vs "{wanted}"')

    def _find(self, name, node):
        at = node['metadata'].get('NAMESPACE', ''), name
        if at not in self._entries:
            raise Failed(grpc.StatusCode.UNKNOWN, 'proxy metadata indicates that it must correspond to an existing WorkloadEntry, '
                         f'however WorkloadEntry {at[0]}/{at[1]} is not found')
        return at if PROBED in self._entries[at]['annotations'] else None

    def disconnect(self, stream):
        at, stream.registered = stream.registered, None
        self._nodes.pop(stream, None)
        streams = self._streams.get(at, set())
        streams.discard(stream)
        if not at or streams:
            return
        self._entries[at]['annotations'][DISCONNECTED] = _now()
        self._tell('disconnected', at)
        self._ending[at] = asyncio.create_task(self._end(at))

    async def _end(self, at):
        await asyncio.sleep(self.grace_s)
        del self._ending[at]
        if GROUP in self._entries[at]['annotations']:
            del self._entries[at]
            self._tell('deleted', at)
        else:
            self._entries[at]['conditions'] = {}
            self._tell('forgotten', at)

    def health(self, stream, error):
        """A HealthInformation; `error` is the request's error_detail, or None."""
        at = stream.registered
        if not at or PROBED not in self._entries[at]['annotations']:
            return
        self._entries[at]['conditions'] = {'Healthy': {'status': error is None, 'message': error or ''}}
        self._tell('healthy' if error is None else 'unhealthy', at)
