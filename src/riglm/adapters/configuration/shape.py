"""The configuration's shape: which keys there are below a path, and of what kind."""

import types
import typing
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, SecretStr

from riglm.adapters.configuration.problem import KeyPath
from riglm.domain.schemas.settings import Settings

Form = Literal["section", "map", "list", "value"]
"""A section has fixed keys, a map keys of the user's choice."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One place in the configuration: its form, the keys of a section, and what a map or list holds.

    `is_text` is True if a value may be any text, and is neither a number nor one of some choices.
    """

    form: Form
    keys: dict[str, Any]
    item: Any = None
    is_text: bool = False

    def below(self, key: str | int) -> "Shape | None":
        """The place under a key, None when there can be none."""
        if self.form == "section":
            return shape_of(self.keys[key]) if key in self.keys else None
        return shape_of(self.item) if self.form in {"map", "list"} else None


def shape_of(annotation: Any) -> Shape:
    """The shape that values of a type have."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return shape_of(next(argument for argument in arguments if argument is not types.NoneType))
    if origin is typing.Annotated:
        return shape_of(arguments[0])
    if origin is dict:
        return Shape("map", {}, arguments[1])
    if origin is tuple:
        return Shape("list", {}, arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return Shape("section", {field.alias or name: field.annotation for name, field in fields})
    return Shape("value", {}, is_text=annotation in {str, Any, SecretStr})


TOP = shape_of(Settings)
"""The shape of the whole configuration."""


def keys_at(path: KeyPath) -> tuple[str, ...]:
    """The keys that a section takes; none where there is no section."""
    here = _at(path)
    return tuple(here.keys) if here else ()


def holds_text(path: KeyPath) -> bool:
    """Whether a value at a path may be any text; where the configuration knows no such path, it may."""
    here = _at(path)
    return here is None or here.form != "value" or here.is_text


def _at(path: KeyPath) -> Shape | None:
    here: Shape | None = TOP
    for part in path:
        here = here.below(part) if here else None
    return here
