"""Conversion of values that no database type fits directly."""

import json
from typing import Any
from uuid import UUID

from sqlalchemy import Dialect, LargeBinary, Text, TypeDecorator, Uuid
from sqlalchemy.types import TypeEngine

from riglm.adapters.analytics.odd_text import original, storable


class CompactUuid(TypeDecorator[UUID]):
    """A UUID in 16 bytes: bytes on SQLite, the native type elsewhere."""

    impl = LargeBinary(16)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The type underneath."""
        return dialect.type_descriptor(LargeBinary(16) if dialect.name == "sqlite" else Uuid())

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> Any:
        """A UUID as the database takes it. Raises `TypeError` for any other value."""
        if value is not None and not isinstance(value, UUID):
            raise TypeError(f"{type(value).__name__} is no UUID")
        return value.bytes if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:
        """A UUID as the database gave it."""
        return UUID(bytes=value) if isinstance(value, bytes) else value


class SafeText(TypeDecorator[str]):
    """Untrusted text, which is read back unchanged, with any characters."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Text that can be stored."""
        return None if value is None else storable(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Text as it was."""
        return None if value is None else original(value)


class JsonText(TypeDecorator[Any]):
    """A small JSON value as ASCII text, spelt in one way."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """The value as JSON."""
        return to_json(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value from JSON."""
        return None if value is None else json.loads(value)


def to_json(value: Any) -> str:
    """Compact ASCII JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
