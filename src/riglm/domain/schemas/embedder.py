"""What turns texts into vectors."""

from typing import Any, Final

from pydantic import Field

from riglm.domain.schemas.base import Seconds, Section

OWN_PROVIDERS: Final = ("fastembed", "static")
"""The embedders that come with riglm."""


class Embedder(Section):
    """What turns descriptions and contexts into vectors. No network is used: `riglm embedder pull` downloads models."""

    provider: str = Field(
        default="fastembed",
        min_length=1,
        description="`fastembed`: a real model; `static`: hashed words, without a model's memory and time; or one of "
        "the entry-point group `riglm.embedders`.",
    )
    options: dict[str, Any] = Field(default={}, description="Options of an embedder that a package brings, by name.")
    model: str = Field(
        default="riglm/all-MiniLM-L6-v2-int8",
        min_length=1,
        description="The model that is installed with riglm, or one of fastembed's, for example "
        "`BAAI/bge-small-en-v1.5`. While it is missing, the installed one is used, then hashed words; for knowledge "
        "there is no fallback for a model that is named here.",
    )
    directory: str | None = Field(
        default=None, min_length=1, description="Where downloaded models are kept; by default in the user's cache."
    )
    deadline: Seconds = Field(default=10, description="For one batch of texts, in seconds.")
    start_deadline: Seconds = Field(default=30, description="For the model to load, in seconds.")
    batch: int = Field(
        default=8, ge=1, le=1024, description="Number of texts embedded before the next request gets its turn."
    )
    idle: Seconds = Field(
        default=300, description="Seconds without a request after which the model's process ends and frees its memory."
    )
    shared: bool = Field(
        default=True,
        description="`true`: all riglm processes of a user share one model process (`fastembed` only); `false`: each "
        "has a separate one.",
    )
