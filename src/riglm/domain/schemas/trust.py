"""The file of `riglm trust export` and `import`: which tools of which servers are approved."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""The SHA-256 of a definition, in hexadecimal."""


class ApprovedServer(BaseModel):
    """The approved tools of one server, by the server's own names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tools: dict[str, Digest]


class ApprovedTools(BaseModel):
    """All approved tools, by server."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1] = 1
    servers: dict[str, ApprovedServer]
