"""Every kind of record, as hypothesis makes it: whatever a field may hold."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints
from uuid import UUID

import numpy as np
from hypothesis import strategies as st

from riglm.ports.analytics import Record

words = st.text(st.characters(exclude_categories=()), max_size=12)  # NUL and lone surrogates among them
PLAIN = {
    str: words,
    float: st.floats(allow_nan=False),
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    bytes: st.binary(max_size=8),
    UUID: st.uuids(),
    NoneType: st.none(),
    # a vector, whose type only type checkers know
    Any: st.lists(st.floats(width=32, allow_nan=False), max_size=8).map(lambda row: np.array(row, np.float32)),
}
TRANSIENT = {"reserved"}


def field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of a record's fields that are written down."""
    if hasattr(kind, "__struct_fields__"):
        return kind.__struct_fields__
    found = fields(kind) if is_dataclass(kind) else ()
    return tuple(each.name for each in found if each.init and each.name not in TRANSIENT)


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Return what may be in a field of this type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return st.one_of(*map(strategy, arguments))
    if origin is tuple:
        return st.lists(strategy(arguments[0]), max_size=4).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(*map(strategy, arguments), max_size=3)
    if origin is Literal:
        return st.sampled_from(arguments)
    if names := field_names(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{name: strategy(hints[name]) for name in names})
    return st.sampled_from(hint) if issubclass(hint, Enum) else PLAIN[hint]


KINDS = {kind.__name__: strategy(kind) for kind in get_args(Record)}
records = st.one_of(*KINDS.values())
