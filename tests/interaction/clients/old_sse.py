"""A raw client's way over HTTP with SSE, the transport of 2024-11-05."""

import asyncio
from collections.abc import Mapping
from urllib.parse import urljoin

from tests.interaction.clients import http
from tests.interaction.clients.link import Receiver
from tests.waiting import WAIT_SECONDS


class SseLink:
    """Reads everything from one event stream and POSTs to the endpoint that it names."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._url = url
        self._headers = dict(headers or {})

    async def open(self, receiver: Receiver) -> None:
        """Open the event stream and wait for the endpoint's name."""
        self._receiver = receiver
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        async with asyncio.timeout(WAIT_SECONDS):
            self.endpoint = urljoin(self._url, await self._endpoint)

    async def send(self, raw: bytes) -> object:
        """POST one message."""
        headers = {"content-type": "application/json", **self._headers}
        response = await http.send("POST", self.endpoint, headers, raw)
        body = await response.body()
        await response.close()
        if response.status != 202:
            raise ConnectionError(f"HTTP {response.status}: {body[:200]!r}")
        return self

    async def abandon(self, stream: object) -> bool:
        """All requests share one stream."""
        return False

    async def close(self) -> None:
        """Leave the event stream."""
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def _read(self) -> None:
        try:
            response = await http.send("GET", self._url, {"accept": "text/event-stream", **self._headers})
            try:
                if response.status != 200:
                    raise ConnectionError(f"HTTP {response.status}: {await response.body()!r}")
                async for name, data in http.events(response):
                    if name == "endpoint":
                        self._endpoint.set_result(data.decode())
                    else:
                        self._receiver.received(data, self)
            finally:
                await response.close()
            raise http.Broken("the event stream ended")
        except (ConnectionError, TimeoutError) as error:
            if not self._endpoint.done():
                self._endpoint.set_exception(error)
            self._receiver.stream_ended(self, error)
