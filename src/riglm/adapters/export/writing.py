"""Rows written to a file, a part at a time: as lines of JSON or as CSV."""

import csv
import io
from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, BinaryIO, Protocol

import msgspec

from riglm.adapters.export.columns import COLUMNS, Type
from riglm.domain.moments import told_moment
from riglm.ports.maintenance import Kind, Row


class RowWriter(Protocol):
    """Writes rows of one kind."""

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Write rows, in the order given."""

    @abstractmethod
    def close(self) -> None:
        """Write what is still to be written; the file stays open."""


class JsonLines(RowWriter):
    """One object a line. With `names_kind` each line says in `table` which kind it is of."""

    def __init__(self, file: BinaryIO, kind: Kind, *, names_kind: bool = False) -> None:
        self._file = file
        self._first: dict[str, Any] = {"table": kind.value} if names_kind else {}
        self._columns = COLUMNS[kind]
        self._encoder = msgspec.json.Encoder()

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows, in the order given."""
        try:
            self._file.write(self._encoder.encode_lines(self._told(rows)))
        except UnicodeEncodeError:
            self._file.write(self._encoder.encode_lines(self._told([clean(row) for row in rows])))

    def close(self) -> None:
        """Nothing is left to be written."""

    def _told(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        columns = self._columns.items()
        return [{**self._first, **{name: _plain(row[name], type_) for name, type_ in columns}} for row in rows]


class Csv(RowWriter):
    """A line of names, then a line for each row; lists and objects are JSON, what is not known is empty."""

    def __init__(self, file: BinaryIO, kind: Kind) -> None:
        self._text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="", write_through=True)
        self._columns = COLUMNS[kind]
        self._writer = csv.writer(self._text)
        self._writer.writerow(self._columns)

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows, in the order given."""
        columns = self._columns.items()
        self._writer.writerows([_cell(row[name], type_) for name, type_ in columns] for row in rows)

    def close(self) -> None:
        """Write what is still to be written."""
        self._text.flush()
        self._text.detach()


def moment(seconds: float) -> datetime:
    """A time in seconds since the epoch as a moment in UTC."""
    return told_moment(seconds)


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
