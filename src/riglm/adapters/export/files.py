"""A whole store handed out: a file for each kind of record and a manifest, or everything on one stream."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from riglm.adapters.export.rows import Csv, JsonLines, RowWriter
from riglm.domain.errors import ConfigurationError, RiglmError
from riglm.ports.maintenance import ExportPort, RecordKind

FileFormat = Literal["jsonl", "csv", "parquet"]

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
    require(format_)
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

    Raises `ConfigurationError` for a format that several kinds, or a stream, cannot have.
    """
    if format_ == "parquet" or (format_ == "csv" and len(kinds) != 1):
        raise ConfigurationError(
            f"{format_} cannot be written to a stream this way — fix: use --format jsonl, or csv with one --table, or "
            "name a directory"
        )
    counts = {}
    for kind in kinds:
        writer = Csv(file, kind) if format_ == "csv" else JsonLines(file, kind, names_kind=True)
        counts[kind] = _written(store, writer, kind, since, progress)
    file.flush()
    return counts


def require(format_: FileFormat) -> None:
    """See that a format can be written. Raises `ConfigurationError` when what it needs is not installed."""
    if format_ == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401, PLC0415  # an extra, and large
        except ImportError as error:
            raise ConfigurationError(
                "Parquet needs pyarrow, which is not installed — fix: pip install 'riglm[parquet]', or use --format "
                "jsonl or csv"
            ) from error


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
    if format_ == "parquet":
        from riglm.adapters.export.parquet import Parquet  # noqa: PLC0415  # see require

        return Parquet(file, kind)
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
        raise RiglmError(
            f"the export cannot be written to {directory} ({error.strerror}) — fix: name a directory that you may "
            "write to, with enough space"
        ) from error


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
