"""The shape of the configuration: its sections, maps, lists and values."""

import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, SecretStr

from riglm.domain.schemas.settings import Settings

IndexedKeyPath = tuple[str | int, ...]
"""The location of a value in the configuration: keys and positions from the top."""


def dotted(path: IndexedKeyPath) -> str:
    """A path as people write it: `mcpServers.github.args[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """One place in the configuration: its form, the keys of a section, and what a map or list holds.

    A section has fixed keys, a map keys of the user's choice. `is_text` is True if a value may be any text, and is
    neither a number nor one of some choices.
    """

    form: Literal["section", "map", "list", "value"]
    keys: dict[str, Any] = field(default_factory=dict)
    item: Any = None
    is_text: bool = False

    def below(self, key: str | int) -> "SchemaNode | None":
        """The place under a key, None when there can be none."""
        if self.form == "section":
            return shape_of(self.keys[str(key)]) if key in self.keys else None
        return shape_of(self.item) if self.form in {"map", "list"} else None


def shape_of(annotation: Any) -> SchemaNode:
    """The shape that values of a type have."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType, typing.Annotated}:
        return shape_of(next(argument for argument in arguments if argument is not types.NoneType))
    if origin is dict:
        return SchemaNode("map", item=arguments[1])
    if origin is tuple:
        return SchemaNode("list", item=arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return SchemaNode("section", {field.alias or name: field.annotation for name, field in fields})
    return SchemaNode("value", is_text=annotation in {str, Any, SecretStr})


TOP = shape_of(Settings)
"""The shape of the whole configuration."""


def shape_at(path: IndexedKeyPath) -> SchemaNode | None:
    """The shape at a path, None if the configuration has no such path."""
    here: SchemaNode | None = TOP
    for part in path:
        here = here.below(part) if here else None
    return here


def keys_at(path: IndexedKeyPath) -> tuple[str, ...]:
    """The keys that a section takes; none where there is no section."""
    here = shape_at(path)
    return tuple(here.keys) if here else ()


def holds_text(path: IndexedKeyPath) -> bool:
    """Whether a value at a path may be any text; where the configuration knows no such path, it may."""
    here = shape_at(path)
    return here is None or here.form != "value" or here.is_text
