"""What every CSR and every stream passes before it is served: pauses, delays, failures, istiod's limits.

Order and texts are istiod's: is it ready, has the limiter a place, then who is it (istio-agent.md 13).
"""
import asyncio
import contextlib
import time

import grpc

NOT_READY = 'server is not ready to serve discovery information'
LIMITED = 'request rate limit exceeded: rate: Wait(n=1) would exceed context deadline'


class Refusal(Exception):
    """A status that ends the call."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


class Limiter:
    """New streams per second: a place at most a second away is waited for, a later one refused."""

    def __init__(self, per_second):
        self._pause = 1 / per_second
        self._next = 0

    async def wait(self):
        now = time.monotonic()
        at = max(now, self._next)
        if at - now > 1:
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, LIMITED)
        self._next = at + self._pause
        await asyncio.sleep(at - now)


class Slots:
    """PILOT_PUSH_THROTTLE: a push holds its slot until it is written, however long its client reads not."""

    def __init__(self, count=0):
        self._slots = asyncio.Semaphore(count) if count else contextlib.nullcontext()

    def one(self):
        return self._slots


class Gate:
    def __init__(self):
        self.open = {'csr': asyncio.Event(), 'ads': asyncio.Event()}
        self.failures = {'csr': [], 'ads': []}
        self.slow_s = {'csr': 0, 'ads': 0}
        self.ready = True
        self.limiter = None
        self.slots = Slots()
        for event in self.open.values():
            event.set()

    async def admit(self, delta):
        """For a stream, before its token is looked at."""
        if not self.ready:
            code = grpc.StatusCode.UNKNOWN if delta else grpc.StatusCode.UNAVAILABLE
            raise Refusal(code, NOT_READY)
        if self.limiter:
            await self.limiter.wait()

    async def pass_(self, what):
        """For a stream or a CSR, once its token was accepted."""
        await self.open[what].wait()
        await asyncio.sleep(self.slow_s[what])
        if self.failures[what]:
            raise Refusal(*self.failures[what].pop())
