"""A list as one client is shown it."""

from dataclasses import dataclass

from riglm.domain.exposure import Mode


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a catalogue is shown and hidden, in the catalogue's order, by whose choice, and at what cost.

    In shadow mode `shown` and `hidden` say what would have been. What is denied is in neither. Tokens are estimates, as
    in an exposure.
    """

    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    predictor: str = ""
    reason: str = "everything is shown"
    mode: Mode = "off"
    surface: str = ""
    tokens_shown: int = 0
    tokens_hidden: int = 0
    tokens_own: int = 0


@dataclass(frozen=True, slots=True)
class ShownList:
    """A list for one client.

    `raw` is a JSON array of the entries to send. When it is `untouched`, they are all of the upstream's, so that its
    own answer can go out as it came.
    """

    raw: bytes
    selection: Selection
    untouched: bool = False
