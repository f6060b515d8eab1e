"""What all configuration models have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

Seconds = Annotated[float, Field(gt=0, le=31_536_000)]
"""A span of time in seconds: more than nothing, at most a year."""

SecretMap = dict[str, SecretStr]
"""Names with values that are never shown."""


class Section(BaseModel):
    """A part of the configuration: read once, never changed, nothing in it unknown."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        populate_by_name=True,
        defer_build=True,
        hide_input_in_errors=True,
    )


def problem(what: str, fix: str, *, key: str = "") -> PydanticCustomError:
    """An error for a validator to raise: what is wrong, what to do, and the key below the model that it is about."""
    # The text goes through the context because pydantic reads braces in the template as fields.
    return PydanticCustomError("riglm", "{what} — fix: {fix}", {"what": what, "fix": fix, "key": key})
