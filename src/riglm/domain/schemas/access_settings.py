"""Which servers, tools and profiles a group of callers may use."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from riglm.domain.policy import fault
from riglm.domain.schemas.base import SettingsModel, problem

ANY_GROUP: Final = "*"
"""The group of all callers."""


def _refuse_faulty(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns, for a validator of a field; one that can match nothing is an error."""
    for pattern in patterns:
        found = fault(pattern)
        if found is not None:
            raise problem(*found)
    return patterns


Patterns = Annotated[tuple[str, ...], AfterValidator(_refuse_faulty)]
"""Names or glob patterns."""


class AccessSettings(SettingsModel):
    """What a group may see and use: the named tools of the named servers, in the named profiles.

    Callers with a token of `downstream.auth` have the groups of its claim, those with one of `downstream.tokens` the
    group of its name. `*` is the group of all callers. Once there is a rule, callers without one get nothing.
    """

    servers: Patterns = Field(default=("*",), min_length=1)
    """Names or glob patterns of servers: of others, the group gets no tools, resources and prompts."""
    tools: Patterns = Field(default=("*",), min_length=1)
    """Names or glob patterns of these servers' tools, exactly as spelt: with `__` for `SERVER__TOOL`, without for the
    tool's name at its server.
    """
    profiles: Patterns = Field(default=("*",), min_length=1)
    """Names or glob patterns of profiles; `default` is the one without."""
