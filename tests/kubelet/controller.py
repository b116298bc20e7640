"""What csi-sanity needs beside a driver of nodes (section 4).

A controller, because one of its specs creates the volume that it publishes: any volume is that of one pod, with the
context that the kubelet would give.  And a way to the driver on which `.../target`, the name that csi-sanity has for
every target path, becomes the kubelet's `.../mount`, and its volumes `readonly`, a word that it leaves out; all other bytes pass as they are.
"""
import asyncio
import json
from pathlib import Path

import grpc

from .messages import CLASSES, CONTROLLER, IDENTITY, METHODS, NODE

_CONTROLLER_SERVICE, _CREATE_DELETE_VOLUME = 1, 1
_SANITYS, _KUBELETS = '/target', '/mount'


def _controller(context):
    def capabilities(*_):
        return CLASSES['GetPluginCapabilitiesResponse'](capabilities=[{'service': {'type': _CONTROLLER_SERVICE}}])

    def controller_capabilities(*_):
        return CLASSES['ControllerGetCapabilitiesResponse'](capabilities=[{'rpc': {'type': _CREATE_DELETE_VOLUME}}])

    def create(request, _):
        return CLASSES['CreateVolumeResponse'](volume={'volume_id': f'csi-{request.name}', 'volume_context': context})
    return {
        IDENTITY: {'GetPluginInfo': lambda *_: CLASSES['GetPluginInfoResponse'](name='controller', vendor_version='1'),
                   'GetPluginCapabilities': capabilities, 'Probe': lambda *_: CLASSES['ProbeResponse']()},
        CONTROLLER: {'CreateVolume': create, 'DeleteVolume': lambda *_: CLASSES['DeleteVolumeResponse'](),
                     'ControllerGetCapabilities': controller_capabilities}}


def _way_to(channel):
    def forward(path, request_class, response_class):
        rpc = channel.unary_unary(path, request_class.SerializeToString, response_class.FromString)

        async def call(request, context):
            if 'target_path' in request.DESCRIPTOR.fields_by_name and request.target_path.endswith(_SANITYS):
                request.target_path = request.target_path.removesuffix(_SANITYS) + _KUBELETS
            if 'readonly' in request.DESCRIPTOR.fields_by_name:
                request.readonly = True
            try:
                return await rpc(request, timeout=60)
            except grpc.aio.AioRpcError as e:
                await context.abort(e.code(), e.details())
        return call
    found = {IDENTITY: {}, NODE: {}}
    for path, classes in METHODS.items():
        service, method = path[1:].split('/')
        if service in found:
            found[service][method] = forward(path, *classes)
    return found


async def _serve(address, services):
    server = grpc.aio.server()
    for service, methods in services.items():
        handlers = {m: grpc.unary_unary_rpc_method_handler(
            f, METHODS[f'/{service}/{m}'][0].FromString, METHODS[f'/{service}/{m}'][1].SerializeToString)
            for m, f in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f'unix:{address}')
    await server.start()
    return server


async def _run(directory, driver):
    """Serves DIR/node.sock and DIR/controller.sock; DIR/context.json is the volumes' context."""
    context = json.loads((directory / 'context.json').read_text())
    async with grpc.aio.insecure_channel(f'unix:{driver}', (('grpc.default_authority', 'localhost'),)) as channel:
        servers = [await _serve(directory / 'node.sock', _way_to(channel)),
                   await _serve(directory / 'controller.sock', _controller(context))]
        await asyncio.gather(*(s.wait_for_termination() for s in servers))


def main(directory, driver):
    asyncio.run(_run(Path(directory), driver))
