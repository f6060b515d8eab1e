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


def _routes(pairs: tuple[tuple[str, str], ...], eras: tuple[str, ...]) -> list[Route]:
    return [Route(front, back, RIGLM, era) for era in eras for front, back in pairs]


MAIN = _routes((("stdio", "stdio"), ("http", "http"), ("stdio", "http"), ("http", "stdio")), (HANDSHAKE, MODERN))
"""stdio and Streamable HTTP on either side, both eras."""

CORNERS = [route for route in MAIN if route.front == route.back]
"""The same transport on both sides, where what crosses between them makes no difference."""

OLD = _routes((("sse", "stdio"), ("stdio", "sse"), ("sse", "sse"), ("http", "sse"), ("sse", "http")), (HANDSHAKE,))
"""The transport of 2024-11-05 on one side or both."""

EVERY = MAIN + OLD
"""The same and the transport of 2024-11-05."""

CROSSED = [route for route in MAIN if route.front != route.back] + [Route("sse", "sse", RIGLM, HANDSHAKE)]
"""Every transport once on either side in each era: enough for what one side alone can do or spoil."""

STDIO_BACK = [route for route in MAIN if route.back == "stdio"]
HTTP_BACK = [route for route in MAIN if route.back == "http"]
HTTP_FRONT = [route for route in MAIN if route.front == "http"]
STDIO_FRONT = [route for route in MAIN if route.front == "stdio"]


def routes(chosen: list[Route], era: str | None = None) -> pytest.MarkDecorator:
    """Run a test on each of these routes."""
    return pytest.mark.parametrize("route", [route for route in chosen if era in (None, route.era)], ids=str)
