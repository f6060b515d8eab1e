"""An exposure: one list of tools that was shown."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """What one `tools/list` showed and hid, by whose choice, and why.

    `timestamp` is in seconds since the epoch; `predictor` is empty when nothing was predicted.
    """

    id: UUID
    session_id: UUID
    timestamp: float
    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    predictor: str = ""
    reason: str = ""
