"""Which riglm the suite judges: its command, and how it filters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.subject import Served

NO_FILTER: Final = "none"

FILTERINGS: Final[Mapping[str, tuple[Sequence[str], Mapping[str, str]]]] = {
    NO_FILTER: (("--no-filter",), {}),
    "defaults": ((), {}),
    "shadow": ((), {"RIGLM_FILTERING__MODE": "shadow"}),
    # Three tools of the reference server fit no pattern: with all of them pinned the list would pass whole, unfiltered.
    "enforce": (
        (),
        {
            "RIGLM_FILTERING__PINNED": '["test_*_*", "json_schema_*"]',
            "RIGLM_FILTERING__COLD_START_LIMIT": "1",
            "RIGLM_FILTERING__MIN_TOOLS": "1",
        },
    ),
}
"""What riglm is given for each way to filter: further arguments, and variables."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A riglm that is not started yet."""

    command: tuple[str, ...]
    filtering: str = NO_FILTER

    def served(self, upstream: Sequence[str], directory: Path) -> Served:
        """It, started in front of an upstream.

        Raises:
            StartFailed: it ended, or it does not listen.
        """
        arguments, settings = FILTERINGS[self.filtering]
        return Served(self.command, upstream, directory, arguments=arguments, **settings)
