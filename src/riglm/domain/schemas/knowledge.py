"""What riglm knows and is asked by `inner_voice.retrieve`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from riglm.domain.schemas.base import Seconds, Section, problem
from riglm.domain.schemas.filtering import MetaToolSwitches

Similarity = Annotated[float, Field(ge=0, le=1)]
"""A cosine similarity that counts for something."""

USUAL_MIN_FLOOR = 0.15
"""Default of how far the floor gives way."""

USUAL_CANDIDATES = 150
"""Default number of candidates of each source."""

MOST_CANDIDATES = 10_000
"""More candidates of a source are never looked at."""


class Knowledge(Section):
    """The knowledge store, and the tool that asks it."""

    enabled: bool = Field(
        default=False, description="Offer the tool that finds snippets of knowledge; `SURR_ENABLE_INNER_VOICE=1` does."
    )
    alias: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="List `inner_voice.retrieve` under this name, for example for clients that take no dots; by its "
        "own name it can still be called.",
    )
    shared: bool = Field(default=False, description="All callers of this riglm are answered from pieces of all owners.")
    mix: Similarity = Field(default=0.6, description="The share of the graph in an answer; the rest are thoughts.")
    top_k: int = Field(default=10, ge=1, le=50, description="Default number of snippets.")
    floor: Similarity = Field(default=0.25, description="Snippets are at least so similar to the question.")
    min_floor: float = Field(
        default=USUAL_MIN_FLOOR,
        gt=0,
        lt=1,
        description="The floor gives way down to here rather than leave a source out.",
    )
    max_candidates_per_source: int = Field(
        default=USUAL_CANDIDATES,
        ge=1,
        le=MOST_CANDIDATES,
        description="Maximum number of candidates of each source.",
    )
    deadline: Seconds = Field(default=20, description="Seconds to wait for the embedder, and for the store.")
    dimensions: int | None = Field(
        default=None,
        ge=1,
        description="Expected dimensions of the model's vectors: a warning is logged if they differ.",
    )

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if self.alias in MetaToolSwitches.model_fields:
            raise problem(f"{self.alias!r} is another tool of riglm", "choose another name", key="alias")
        return self

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.max_candidates_per_source < self.top_k:
            raise problem(
                f"max_candidates_per_source ({self.max_candidates_per_source}) is less than top_k ({self.top_k})",
                "make it larger",
                key="max_candidates_per_source",
            )
        return self
