"""What comes next, and what is learned."""

from typing import Any, Final, Literal

from pydantic import Field

from riglm.domain.schemas.base import Section

OWN_KINDS: Final = ("frequency", "cooccurrence", "sequence", "embedding", "server", "hybrid")
"""The predictors that come with riglm."""


class Predictor(Section):
    """The strategy that says which tools come next."""

    kind: str = Field(
        default="hybrid",
        min_length=1,
        description=f"{', '.join(OWN_KINDS)}, or one of the entry-point group `riglm.predictors`.",
    )
    options: dict[str, Any] = Field(default={}, description="Options of the strategy, by name.")


class Learning(Section):
    """What is learned from recorded use."""

    scope: Literal["principal", "tenant", "instance"] = Field(
        default="principal",
        description="Which callers share what is learned: only those of one principal, or all callers of one store "
        "(`tenant` and `instance`, which are the same).",
    )
    max_pairs: int = Field(
        default=5000,
        ge=1,
        description="Maximum number of learned pairs. The oldest and least confident are removed first.",
    )
