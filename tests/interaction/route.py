"""The ways from a client to a server."""

from dataclasses import dataclass

import pytest

from tests.interaction.clients.raw import HANDSHAKE, MODERN

DIRECT = "direct"
RIGLM = "riglm"


@dataclass(frozen=True, slots=True)
class Route:
    """How the client speaks (`front`), how the server speaks (`back`), whether riglm stands between, and the era."""

    front: str
    back: str
    through: str
    era: str

    def __str__(self) -> str:
        return f"{self.front}-{self.back}-{self.through}-{self.era}"

    @property
    def direct(self) -> bool:
        """Whether client and server speak with each other."""
        return self.through == DIRECT


MAIN = [
    Route("stdio", "stdio", RIGLM, HANDSHAKE),
    Route("http", "http", RIGLM, HANDSHAKE),
    Route("stdio", "http", RIGLM, MODERN),
    Route("http", "stdio", RIGLM, MODERN),
]
"""stdio and Streamable HTTP: every pair of front and back, of front and era, and of back and era."""

CORNERS = [Route("stdio", "stdio", RIGLM, HANDSHAKE), Route("http", "http", RIGLM, MODERN)]
"""One route for each era, where what a transport does makes no difference."""

CROSSED = [
    Route("stdio", "http", RIGLM, HANDSHAKE),
    Route("http", "stdio", RIGLM, HANDSHAKE),
    Route("http", "http", RIGLM, MODERN),
    Route("sse", "sse", RIGLM, HANDSHAKE),
]
"""Every transport once on either side: enough for what one side alone can do or spoil."""

OLD = [Route("sse", "stdio", RIGLM, HANDSHAKE), Route("http", "sse", RIGLM, HANDSHAKE)]
"""The transport of 2024-11-05 on one side."""

EVERY = MAIN + OLD
"""Those of `MAIN`, and the transport of 2024-11-05 beside others."""

STDIO_BACK = [route for route in MAIN if route.back == "stdio"]
HTTP_BACK = [route for route in MAIN if route.back == "http"]
HTTP_FRONT = [route for route in MAIN if route.front == "http"]
STDIO_FRONT = [route for route in MAIN if route.front == "stdio"]


def routes(chosen: list[Route], era: str | None = None) -> pytest.MarkDecorator:
    """Run a test on each of these routes."""
    return pytest.mark.parametrize("route", [route for route in chosen if era in (None, route.era)], ids=str)
