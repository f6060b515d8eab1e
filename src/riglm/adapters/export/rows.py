"""Rows of an export, written as JSON Lines or CSV."""

import csv
import io
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Any, BinaryIO, Final, Protocol

import msgspec

from riglm.domain.duration import to_utc_datetime
from riglm.ports.maintenance import ExportRow, RecordKind


class Type(Enum):
    """What a column holds."""

    TEXT = auto()
    TIME = auto()
    """Seconds since the epoch as they come; written as a moment in UTC."""
    NUMBER = auto()
    INTEGER = auto()
    FLAG = auto()
    TEXTS = auto()
    NUMBERS = auto()
    INTEGERS = auto()
    OBJECT = auto()


def _texts(*names: str) -> dict[str, Type]:
    return dict.fromkeys(names, Type.TEXT)


COLUMNS: Final[Mapping[RecordKind, Mapping[str, Type]]] = {
    RecordKind.SESSIONS: {
        "id": Type.TEXT,
        "started_at": Type.TIME,
        "ended_at": Type.TIME,
        **_texts("era", "transport", "method", "confidence", "client_name", "client_version", "client_id"),
        **_texts("principal", "protocol_version"),
        "keys": Type.OBJECT,
        "metadata": Type.OBJECT,
        "tools_available": Type.TEXTS,
    },
    RecordKind.INVOCATIONS: {
        **_texts("id", "session_id", "tool", "upstream"),
        "timestamp": Type.TIME,
        "duration_ms": Type.NUMBER,
        "success": Type.FLAG,
        "sequence_number": Type.INTEGER,
        **_texts("arguments_hash", "arguments", "error_kind"),
        "error_code": Type.INTEGER,
        "found": Type.TEXT,
    },
    RecordKind.EXPOSURES: {
        **_texts("id", "session_id"),
        "timestamp": Type.TIME,
        "shown": Type.TEXTS,
        "hidden": Type.TEXTS,
        **_texts("predictor", "reason", "mode", "surface"),
        "tokens_shown": Type.INTEGER,
        "tokens_hidden": Type.INTEGER,
        "tokens_own": Type.INTEGER,
    },
    RecordKind.COOCCURRENCES: {
        **_texts("tool_a", "tool_b"),
        "count": Type.INTEGER,
        "average_distance": Type.NUMBER,
        "last_updated": Type.TIME,
    },
    RecordKind.LEARNED_PAIRS: {
        **_texts("id", "scope", "tool", "model"),
        "dimensions": Type.INTEGER,
        "vector": Type.NUMBERS,
        "confidence": Type.NUMBER,
        "uses": Type.INTEGER,
        "updated_at": Type.TIME,
        "description_hash": Type.TEXT,
        "terms": Type.INTEGERS,
    },
    RecordKind.OVERRIDES: {
        **_texts("id", "kind", "tool", "scope", "key"),
        "created_at": Type.TIME,
        "expires_at": Type.TIME,
        "reason": Type.TEXT,
    },
    RecordKind.WARM_SETS: {
        **_texts("principal", "client", "profile"),
        "evidence": Type.INTEGER,
        "probabilities": Type.OBJECT,
        "requests": Type.NUMBER,
        "distinct_tools": Type.NUMBER,
        "created_at": Type.TIME,
    },
}
"""By kind, in the order in which they are written."""


class RowWriter(Protocol):
    """Writes rows of one kind."""

    @abstractmethod
    def write(self, rows: Sequence[ExportRow]) -> None:
        """Write rows, in the order given."""

    @abstractmethod
    def close(self) -> None:
        """Write what is still to be written; the file stays open."""


class JsonLines(RowWriter):
    """One object a line. With `names_kind` each line says in `table` which kind it is of."""

    def __init__(self, file: BinaryIO, kind: RecordKind, *, names_kind: bool = False) -> None:
        self._file = file
        self._first: dict[str, Any] = {"table": kind.value} if names_kind else {}
        self._columns = COLUMNS[kind]
        self._encoder = msgspec.json.Encoder()

    def write(self, rows: Sequence[ExportRow]) -> None:
        try:
            self._file.write(self._encoder.encode_lines(self._told(rows)))
        except UnicodeEncodeError:
            self._file.write(self._encoder.encode_lines(self._told([clean(row) for row in rows])))

    def close(self) -> None:
        """Nothing is left to be written."""

    def _told(self, rows: Sequence[ExportRow]) -> list[dict[str, Any]]:
        columns = self._columns.items()
        return [{**self._first, **{name: _plain(row[name], type_) for name, type_ in columns}} for row in rows]


class Csv(RowWriter):
    """A line of names, then a line for each row; lists and objects are JSON, what is not known is empty."""

    def __init__(self, file: BinaryIO, kind: RecordKind) -> None:
        self._text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="", write_through=True)
        self._columns = COLUMNS[kind]
        self._writer = csv.writer(self._text)
        self._writer.writerow(self._columns)

    def write(self, rows: Sequence[ExportRow]) -> None:
        columns = self._columns.items()
        self._writer.writerows([_cell(row[name], type_) for name, type_ in columns] for row in rows)

    def close(self) -> None:
        self._text.flush()
        self._text.detach()


def moment(seconds: float) -> datetime:
    """A time in seconds since the epoch as a moment in UTC."""
    return to_utc_datetime(seconds)


def json_text(value: Any) -> str:
    """A value as compact JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(clean(value)).decode()


def clean(value: Any) -> Any:
    """The value with U+FFFD for lone surrogates, which strangers may put into names and no encoding holds."""
    match value:
        case str():
            return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        case list():
            return [clean(each) for each in value]
        case dict():
            return {clean(name): clean(each) for name, each in value.items()}
    return value


def _plain(value: Any, type_: Type) -> Any:
    if value is None or type_ is not Type.TIME:
        return value
    return moment(value).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _cell(value: Any, type_: Type) -> Any:
    match type_:
        case _ if value is None:
            return ""
        case Type.FLAG:
            return "true" if value else "false"
        case Type.TEXTS | Type.NUMBERS | Type.INTEGERS | Type.OBJECT:
            return json_text(value)
    return _plain(value, type_)
