"""The configuration file as riglm read it, to detect changes by others."""

from collections.abc import Sequence

from riglm.adapters.configuration import merging
from riglm.adapters.configuration.problem import dotted
from riglm.domain.control import Conflict
from riglm.domain.schemas.settings import Settings
from riglm.ports.configuration import KeyPath


class FileAsRead:
    """The values of the file as riglm read it, and as riglm itself wrote it since."""

    def __init__(self, settings: Settings) -> None:
        """`settings` were made of the file."""
        self._values = settings.model_dump(by_alias=True)

    def require_unchanged(self, paths: Sequence[KeyPath], now: Settings) -> None:
        """Check that these places of the file are unchanged; `now` is its current content.

        Raises:
            Conflict: they were changed, and writing there would lose that.
        """
        others = merging.differing(self._values, now.model_dump(by_alias=True))
        lost = [path for path in paths if any(_overlap(path, other) for other in others)]
        if lost:
            raise Conflict(
                f"{', '.join(map(dotted, lost))}: the file was changed there since riglm read it — fix: start riglm "
                "again, which reads it, or leave this out"
            )

    def take_down(self, paths: Sequence[KeyPath], written: Settings) -> None:
        """Note what riglm wrote at these places."""
        values = written.model_dump(by_alias=True)
        for path in paths:
            merging.put(self._values, path, merging.found_at(values, path))


def _overlap(one: KeyPath, other: KeyPath) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
