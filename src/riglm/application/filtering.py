"""Which tools a client is shown. For now: all of them."""

from dataclasses import dataclass

from riglm.domain.session import Session
from riglm.domain.tool import Catalogue


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a catalogue is shown and hidden, in the catalogue's order, and by whose choice."""

    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    predictor: str = ""
    reason: str = "everything is shown"


class FilteringService:
    """Decides what a list shows; a list it leaves whole goes out as the bytes it came as."""

    def select(self, session: Session, catalogue: Catalogue) -> Selection:  # the room of prediction
        """The tools of `catalogue` that `session` sees."""
        return Selection(catalogue.names)
