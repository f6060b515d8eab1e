"""What riglm knows and is asked by `inner_voice.retrieve`."""

from typing import Annotated

from pydantic import Field

from riglm.domain.schemas.base import Section

Similarity = Annotated[float, Field(ge=0, le=1)]
"""A cosine similarity that counts for something."""


class Knowledge(Section):
    """The knowledge store, and the tool that asks it."""

    enabled: bool = Field(
        default=False, description="Offer the tool that finds snippets of knowledge; `SURR_ENABLE_INNER_VOICE=1` does."
    )
    alias: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Another name for `inner_voice.retrieve`, for clients that take no dots for example.",
    )
    shared: bool = Field(
        default=False, description="Everybody who may use this riglm is answered from what belongs to anybody."
    )
    mix: Similarity = Field(default=0.6, description="The share of the graph in an answer; the rest are thoughts.")
    top_k: int = Field(default=10, ge=1, le=50, description="So many snippets are given when nobody says how many.")
    floor: Similarity = Field(default=0.25, description="Snippets are at least so similar to the question.")
    min_floor: float = Field(
        default=0.15, gt=0, lt=1, description="The floor gives way down to here rather than leave a source out."
    )
    max_candidates_per_source: int = Field(
        default=150, ge=1, le=10_000, description="So many candidates of each source are looked at, at most."
    )
