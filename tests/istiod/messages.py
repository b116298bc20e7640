"""Istio's own protobuf messages (istio-agent.md 1.5, 4.1, 7.2), described here because no wheel has them."""
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto
_STRING, _INT64, _MESSAGE = _FIELD.TYPE_STRING, _FIELD.TYPE_INT64, _FIELD.TYPE_MESSAGE


def _field(message, name, number, kind, repeated=False, of=None):
    label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    message.field.add(name=name, number=number, type=kind, label=label, type_name=of)


def _ca_file():
    f = descriptor_pb2.FileDescriptorProto(
        name='tests/ca.proto', package='istio.v1.auth', syntax='proto3',
        dependency=[struct_pb2.DESCRIPTOR.name])
    request = f.message_type.add(name='IstioCertificateRequest')
    _field(request, 'csr', 1, _STRING)
    _field(request, 'validity_duration', 3, _INT64)
    _field(request, 'metadata', 4, _MESSAGE, of='.google.protobuf.Struct')
    response = f.message_type.add(name='IstioCertificateResponse')
    _field(response, 'cert_chain', 1, _STRING, repeated=True)
    return f


def _nds_file():
    package = 'istio.networking.nds.v1'
    f = descriptor_pb2.FileDescriptorProto(name='tests/nds.proto', package=package, syntax='proto3')
    table = f.message_type.add(name='NameTable')
    info = table.nested_type.add(name='NameInfo')
    _field(info, 'ips', 1, _STRING, repeated=True)
    for number, name in enumerate(('registry', 'shortname', 'namespace'), 2):
        _field(info, name, number, _STRING)
    entry = table.nested_type.add(name='TableEntry')
    entry.options.map_entry = True
    _field(entry, 'key', 1, _STRING)
    _field(entry, 'value', 2, _MESSAGE, of=f'.{package}.NameTable.NameInfo')
    _field(table, 'table', 1, _MESSAGE, repeated=True, of=f'.{package}.NameTable.TableEntry')
    return f


def _pcds_file():
    f = descriptor_pb2.FileDescriptorProto(name='tests/pcds.proto', package='istio.mesh.v1alpha1', syntax='proto3')
    _field(f.message_type.add(name='ProxyConfig'), 'ca_certificates_pem', 34, _STRING, repeated=True)
    return f


_pool = descriptor_pool.Default()
for _file in (_ca_file(), _nds_file(), _pcds_file()):
    _pool.Add(_file)


def _class(name):
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


CertificateRequest = _class('istio.v1.auth.IstioCertificateRequest')
CertificateResponse = _class('istio.v1.auth.IstioCertificateResponse')
NameTable = _class('istio.networking.nds.v1.NameTable')
ProxyConfig = _class('istio.mesh.v1alpha1.ProxyConfig')
