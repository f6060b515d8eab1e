"""A selection of tools as one client gets it: in a list, or in the result of a meta-tool."""

from dataclasses import dataclass

from riglm.domain.exposure import Mode


@dataclass(frozen=True, slots=True)
class Selection:
    """The tools that a client gets and those that are hidden from it, in the catalog's order.

    `raw` is a JSON array of the entries of a list; with `is_passthrough` they are those of the upstream's response,
    unchanged. In shadow mode `shown` and `hidden` say what would be. Denied tools are in neither. Tokens are estimates,
    as in an exposure.
    """

    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    raw: bytes = b""
    is_passthrough: bool = False
    predictor: str = ""
    reason: str = "everything is shown"
    mode: Mode = "off"
    surface: str = ""
    tokens_shown: int = 0
    tokens_hidden: int = 0
    tokens_own: int = 0
