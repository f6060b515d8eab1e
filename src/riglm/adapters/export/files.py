"""Export of the store: a file for each kind of record and a manifest, or all kinds on one stream."""

import csv
import hashlib
import io
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum, auto
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Protocol

import msgspec

from riglm.domain.duration import to_utc_datetime
from riglm.domain.errors import ConfigurationError, RiglmError
from riglm.domain.shortage import full_disk, is_full_disk
from riglm.ports.maintenance import ExportPort, ExportRow, RecordKind


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
        **_texts("principal", "project", "protocol_version"),
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


FileFormat = Literal["jsonl", "csv"]

MANIFEST: Final = "manifest.json"
FORMAT_VERSION: Final = 1
"""Changes when a reader of older exports would misread newer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """One file of an export; `sha256` is of its bytes."""

    file: str
    rows: int
    bytes: int
    sha256: str


ExportProgress = Callable[[RecordKind, int], None]
"""Called with the number of further rows of a kind that were written."""


def export_files(
    store: ExportPort,
    directory: Path,
    format_: FileFormat,
    kinds: Sequence[RecordKind],
    *,
    since: float,
    about: Mapping[str, Any],
    progress: ExportProgress,
) -> dict[RecordKind, ExportResult]:
    """Write a file for each kind into a directory, which is made; last the manifest, with what is said `about` it.

    Raises `ConfigurationError` when one of the files is there already, `RiglmError` when one cannot be written.
    """
    names = {kind: f"{kind.value}.{format_}" for kind in kinds}
    with _told(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (*names.values(), MANIFEST):
            if (directory / name).exists():
                raise ConfigurationError(f"{directory / name} is there already — fix: name a directory without it")
        done = {}
        for kind, name in names.items():
            done[kind] = _export_file(store, directory / name, format_, kind, since, progress)
        tables = {kind.value: asdict(exported) for kind, exported in done.items()}
        manifest = {"version": FORMAT_VERSION, "format": format_, **about, "tables": tables}
        with _new(directory / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=2).encode() + b"\n")
    return done


def export_stream(
    store: ExportPort,
    file: BinaryIO,
    format_: FileFormat,
    kinds: Sequence[RecordKind],
    *,
    since: float,
    progress: ExportProgress,
) -> dict[RecordKind, int]:
    """Write all kinds as lines of JSON that name their kind in `table`, or one kind as CSV; the rows of each.

    Raises `ConfigurationError` for several kinds as CSV.
    """
    if format_ == "csv" and len(kinds) != 1:
        raise ConfigurationError(
            "several tables cannot be written to a stream as CSV — fix: use --format jsonl or one --table, or name a "
            "directory"
        )
    counts = {}
    for kind in kinds:
        writer = Csv(file, kind) if format_ == "csv" else JsonLines(file, kind, names_kind=True)
        counts[kind] = _written(store, writer, kind, since, progress)
    file.flush()
    return counts


def _export_file(
    store: ExportPort, path: Path, format_: FileFormat, kind: RecordKind, since: float, progress: ExportProgress
) -> ExportResult:
    with _new(path) as file:
        hashing = _Hashing(file)
        rows = _written(store, _writer(hashing, format_, kind), kind, since, progress)
    return ExportResult(file=path.name, rows=rows, bytes=hashing.size, sha256=hashing.digest())


def _written(store: ExportPort, writer: RowWriter, kind: RecordKind, since: float, progress: ExportProgress) -> int:
    count = 0
    with closing(writer):
        for rows in store.export(kind, since):
            writer.write(rows)
            count += len(rows)
            progress(kind, len(rows))
    return count


def _writer(file: Any, format_: FileFormat, kind: RecordKind) -> RowWriter:
    return Csv(file, kind) if format_ == "csv" else JsonLines(file, kind)


@contextmanager
def _new(path: Path) -> Iterator[BinaryIO]:
    """A new file that its owner alone may read, under its name once it is whole."""
    draft = path.with_name(f".{path.name}.part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _told(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"the export cannot be written to {directory}"
        if is_full_disk(error):
            raise RiglmError(f"{what}: {full_disk(directory, error)}") from error
        raise RiglmError(f"{what} ({error.strerror}) — fix: name a directory that you may write to") from error


class _Hashing(io.RawIOBase):
    """A file that knows the size and the hash of what was written to it; it stays open when this is closed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes; their number."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._file.write(view)
        self.size += view.nbytes
        return view.nbytes

    def digest(self) -> str:
        """The SHA-256 of all that was written, in hex."""
        return self._hash.hexdigest()
