"""One call on a connection of its own, as the kubelet makes them: dialled, used once, closed."""
import asyncio
import json
import os
import sys
import time
import urllib.parse

import grpc
from google.protobuf import json_format

from . import messages


async def call(socket, method, timeout, fields=None, registration=False):
    """The answer; grpc.aio.AioRpcError (a code, details()) if there is none.  `fields` as JSON has them."""
    path = messages.path_of(method)
    request, response = messages.METHODS[path]
    authority = urllib.parse.quote(str(socket), safe='') if registration else 'localhost'
    options = (('grpc.default_authority', authority), ('grpc.use_local_subchannel_pool', 1),
               ('grpc.primary_user_agent', 'grpc-go/1.79.3'), ('grpc.enable_retries', 0))
    async with grpc.aio.insecure_channel(f'unix:{socket}', options) as channel:
        rpc = channel.unary_unary(path, request.SerializeToString, response.FromString)
        return await rpc(json_format.ParseDict(fields or {}, request()), timeout=timeout)


async def outcome(socket, method, fields, timeout):
    """The same for a test: {code, details, answer, ms}."""
    start = time.monotonic()
    try:
        answer = await call(socket, method, timeout, fields)
        found = {'code': 'OK', 'details': '', 'answer': json_format.MessageToDict(answer)}
    except grpc.aio.AioRpcError as e:
        found = {'code': e.code().name, 'details': e.details() or ''}
    return {**found, 'ms': (time.monotonic() - start) * 1e3, 'at': time.time()}


async def _all(socket, calls, parallel):
    room = asyncio.Semaphore(parallel)

    async def one(method, fields, timeout):
        async with room:
            return await outcome(socket, method, fields, timeout)
    return await asyncio.gather(*(one(*c) for c in calls))


def main(socket, parallel, uid):
    """Of another user from here on: before, all was read that he may not."""
    os.setgroups([])
    os.setresuid(uid, uid, uid)
    print(json.dumps(asyncio.run(_all(socket, json.load(sys.stdin), parallel))))
