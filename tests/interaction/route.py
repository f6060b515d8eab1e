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
    found = []
    for era in eras:
        for front, back in pairs:
            if era == MODERN and "sse" in (front, back):
                continue
            if front == back:
                found.append(Route(front, back, DIRECT, era))
            found.append(Route(front, back, RIGLM, era))
    return found


_MAIN = (("stdio", "stdio"), ("http", "http"), ("stdio", "http"), ("http", "stdio"))
_OLD = (("sse", "stdio"), ("stdio", "sse"), ("sse", "sse"), ("http", "sse"), ("sse", "http"))

MAIN = _routes(_MAIN, (HANDSHAKE, MODERN))
"""stdio and Streamable HTTP on either side, both eras."""

CORNERS = [route for route in MAIN if route.front == route.back]
"""The same transport on both sides, where what crosses between them makes no difference."""

OLD = _routes(_OLD, (HANDSHAKE,))
"""The transport of 2024-11-05 on one side or both."""

EVERY = MAIN + OLD
"""The same and the transport of 2024-11-05."""

CROSSED = [
    Route("stdio", "http", RIGLM, HANDSHAKE),
    Route("http", "stdio", RIGLM, HANDSHAKE),
    Route("sse", "sse", RIGLM, HANDSHAKE),
    Route("stdio", "http", RIGLM, MODERN),
    Route("http", "stdio", RIGLM, MODERN),
]
"""Every transport once on either side in each era: enough for what one side alone can do or spoil."""

STDIO_BACK = [route for route in MAIN if route.back == "stdio"]
HTTP_BACK = [route for route in MAIN if route.back == "http"]
HTTP_FRONT = [route for route in MAIN if route.front == "http"]
STDIO_FRONT = [route for route in MAIN if route.front == "stdio"]


def routes(chosen: list[Route], era: str | None = None, through: str | None = None) -> pytest.MarkDecorator:
    """Run a test on each of these routes."""
    picked = [r for r in chosen if era in (None, r.era) and through in (None, r.through)]
    return pytest.mark.parametrize("route", picked, ids=str)
