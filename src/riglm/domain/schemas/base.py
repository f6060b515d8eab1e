"""What all configuration models have in common."""

import ast
import inspect
import re
import sys
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

Seconds = Annotated[float, Field(gt=0, le=31_536_000)]
"""A span of time in seconds: more than nothing, at most a year."""

SecretMap = dict[str, SecretStr]
"""Names with values that are never shown."""


class SettingsModel(BaseModel):
    """A part of the configuration: read once, never changed, nothing in it unknown."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        populate_by_name=True,
        defer_build=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Describe each key by the docstring below it. Only schemas need these: reading them would slow down starts."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, text in _read_key_docstrings(cls).items():
            properties[cls.model_fields[name].alias or name]["description"] = text
        return schema


def _read_key_docstrings(model: type[BaseModel]) -> dict[str, str]:
    classes = [each for each in _parse_module(model.__module__) if isinstance(each, ast.ClassDef)]
    body = next(each.body for each in classes if each.name == model.__name__)
    return {
        key.target.id: " ".join(text.value.value.split())
        for key, text in pairwise(body)
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


@cache
def _parse_module(name: str) -> list[ast.stmt]:
    return ast.parse(inspect.getsource(sys.modules[name])).body


def problem(what: str, fix: str, *, key: str = "") -> PydanticCustomError:
    """An error for a validator to raise: what is wrong, what to do, and the key below the model that it is about."""
    # The text goes through the context because pydantic reads braces in the template as fields.
    return PydanticCustomError("riglm", "{what} — fix: {fix}", {"what": what, "fix": fix, "key": key})


_PLACEHOLDER = re.compile(
    r"(?i)(your|my|the|change|replace|insert|example|placeholder|secret|token|password|api|key|admin|test|default|here"
    r"|me|this|x|0|1|-|_)+"
)
_MIN_TOKEN = 16


def check_token(token: SecretStr, which: str = "the token") -> SecretStr:
    """Return the token, for a validator of a field; one that is too short, or invalid in a header, is an error."""
    fix = f"use {_MIN_TOKEN} or more letters and digits"
    if not re.fullmatch(r"[!-~]+", token.get_secret_value()):
        raise problem(f"{which} is empty or has spaces or unusual characters", fix)
    if len(token.get_secret_value()) < _MIN_TOKEN:
        raise problem(f"{which} is too short and easy to guess", fix)
    return token


Token = Annotated[SecretStr, AfterValidator(check_token)]
"""A token that riglm requires of its callers."""


def refuse_placeholder(token: SecretStr | None, key: str) -> None:
    """Raise an error when the token under `key`, which guards a public address, looks like one out of an example."""
    if token is not None and _PLACEHOLDER.fullmatch(token.get_secret_value()):
        fix = "use random characters, for example of `openssl rand -hex 32`"
        raise problem("the token that guards a public address is easy to guess", fix, key=key)
