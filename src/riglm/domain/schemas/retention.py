"""How long what was recorded is kept."""

from typing import Annotated

from pydantic import Field

from riglm.domain.retention import DAY_SECONDS, Expiry
from riglm.domain.schemas.base import Section

Days = Annotated[float, Field(ge=0, le=36_500)]
"""A number of days; 0 for no limit."""


class Retention(Section):
    """Number of days that records are kept; 0 keeps them permanently."""

    session_days: Days = Field(
        default=180, description="After the end of a session, when nothing that happened in it is kept any more."
    )
    invocation_days: Days = Field(default=180, description="After a call.")
    exposure_days: Days = Field(default=90, description="After a list of tools was shown.")
    learned_pair_days: Days = Field(default=365, description="After the last use that taught it.")

    def expiry(self, now: float) -> Expiry:
        """What is too old at a time in seconds since the epoch."""

        def before(days: float) -> float | None:
            return now - days * DAY_SECONDS if days else None

        return Expiry(
            now=now,
            sessions=before(self.session_days),
            invocations=before(self.invocation_days),
            exposures=before(self.exposure_days),
            learned_pairs=before(self.learned_pair_days),
        )
