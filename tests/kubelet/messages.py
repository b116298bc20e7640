"""The protobuf messages of kubelet and driver (kubelet-csi.md 5), described here because no wheel has them."""
import re

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {'string': _FIELD.TYPE_STRING, 'bool': _FIELD.TYPE_BOOL, 'int64': _FIELD.TYPE_INT64, 'int32': _FIELD.TYPE_INT32}
REGISTRATION = 'pluginregistration.Registration'
IDENTITY, NODE, CONTROLLER = 'csi.v1.Identity', 'csi.v1.Node', 'csi.v1.Controller'

# As in a .proto, but that enumerations are numbers and nested types have names of their own: the wire is the same.
_REGISTRATION = '''
InfoRequest {}
PluginInfo { string type = 1; string name = 2; string endpoint = 3; repeated string supported_versions = 4 }
RegistrationStatus { bool plugin_registered = 1; string error = 2 }
RegistrationStatusResponse {}
'''
_CSI = '''
GetPluginInfoRequest {}
GetPluginInfoResponse { string name = 1; string vendor_version = 2; map manifest = 3 }
GetPluginCapabilitiesRequest {}
GetPluginCapabilitiesResponse { repeated PluginCapability capabilities = 1 }
PluginCapability { ServiceCapability service = 1 }
ServiceCapability { int32 type = 1 }
ProbeRequest {}
ProbeResponse { BoolValue ready = 1 }
BoolValue { bool value = 1 }
NodeGetInfoRequest {}
NodeGetInfoResponse { string node_id = 1; int64 max_volumes_per_node = 2 }
NodeGetCapabilitiesRequest {}
NodeGetCapabilitiesResponse { repeated NodeServiceCapability capabilities = 1 }
NodeServiceCapability { NodeServiceRpc rpc = 1 }
NodeServiceRpc { int32 type = 1 }
NodePublishVolumeRequest { string volume_id = 1; map publish_context = 2; string staging_target_path = 3;
  string target_path = 4; VolumeCapability volume_capability = 5; bool readonly = 6; map secrets = 7; map volume_context = 8 }
VolumeCapability { BlockVolume block = 1; MountVolume mount = 2; AccessMode access_mode = 3 }
BlockVolume {}
MountVolume { string fs_type = 1; repeated string mount_flags = 2; string volume_mount_group = 3 }
AccessMode { int32 mode = 1 }
NodePublishVolumeResponse {}
NodeUnpublishVolumeRequest { string volume_id = 1; string target_path = 2 }
NodeUnpublishVolumeResponse {}
NodeStageVolumeRequest { string volume_id = 1 }
NodeStageVolumeResponse {}
CreateVolumeRequest { string name = 1 }
CreateVolumeResponse { Volume volume = 1 }
Volume { int64 capacity_bytes = 1; string volume_id = 2; map volume_context = 3 }
DeleteVolumeRequest { string volume_id = 1 }
DeleteVolumeResponse {}
ControllerGetCapabilitiesRequest {}
ControllerGetCapabilitiesResponse { repeated ControllerServiceCapability capabilities = 1 }
ControllerServiceCapability { ControllerServiceRpc rpc = 1 }
ControllerServiceRpc { int32 type = 1 }
'''


def _add_field(package, message, text):
    repeated, kind, name, number = re.fullmatch(r'(repeated )?(\w+) (\w+) = (\d+)', text).groups()
    field = message.field.add(name=name, number=int(number), label=(
        _FIELD.LABEL_REPEATED if repeated or kind == 'map' else _FIELD.LABEL_OPTIONAL))
    if kind == 'map':
        entry = message.nested_type.add(name=''.join(p.title() for p in name.split('_')) + 'Entry')
        entry.options.map_entry = True
        for n, part in enumerate(('key', 'value'), 1):
            entry.field.add(name=part, number=n, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
        kind = f'{message.name}.{entry.name}'
    if kind in _KINDS:
        field.type = _KINDS[kind]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f'.{package}.{kind}'


def _classes(package, text):
    """Name -> class of each message."""
    file = descriptor_pb2.FileDescriptorProto(name=f'tests/{package}.proto', package=package, syntax='proto3')
    for name, fields in re.findall(r'(\w+) \{(.*?)\}', text, re.S):
        message = file.message_type.add(name=name)
        for field in filter(None, (' '.join(f.split()) for f in fields.split(';'))):
            _add_field(package, message, field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {m.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f'{package}.{m.name}'))
            for m in file.message_type}


CLASSES = {**_classes('pluginregistration', _REGISTRATION), **_classes('csi.v1', _CSI)}

# Path of each method -> (request, response).
METHODS = {f'/{service}/{method}': (CLASSES[request], CLASSES[response]) for service, method, request, response in (
    (REGISTRATION, 'GetInfo', 'InfoRequest', 'PluginInfo'),
    (REGISTRATION, 'NotifyRegistrationStatus', 'RegistrationStatus', 'RegistrationStatusResponse'),
    *((service, m, f'{m}Request', f'{m}Response') for service, methods in (
        (IDENTITY, ('GetPluginInfo', 'GetPluginCapabilities', 'Probe')),
        (NODE, ('NodeGetInfo', 'NodeGetCapabilities', 'NodePublishVolume', 'NodeUnpublishVolume', 'NodeStageVolume')),
        (CONTROLLER, ('CreateVolume', 'DeleteVolume', 'ControllerGetCapabilities'))) for m in methods))}


def path_of(method):
    """The whole path of "NodePublishVolume"."""
    return next(p for p in METHODS if p.endswith(f'/{method}'))
