"""Export of the store: a file for each kind of record and a manifest, or all kinds on one stream."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from riglm.domain.duration import to_utc_datetime
from riglm.domain.errors import ConfigurationError, RiglmError, full_disk, is_full_disk
from riglm.ports.analytics import ExportPort, ExportRow, RecordKind

COLUMNS: Final[Mapping[RecordKind, tuple[str, ...]]] = {
    kind: tuple(names.split())
    for kind, names in {
        RecordKind.SESSIONS: "id started_at ended_at era transport method confidence client_name client_version "
        "client_id principal project protocol_version keys metadata tools_available",
        RecordKind.INVOCATIONS: "id session_id tool upstream timestamp duration_ms success sequence_number "
        "arguments_hash arguments error_kind error_code found",
        RecordKind.EXPOSURES: "id session_id timestamp shown hidden predictor reason mode surface tokens_shown "
        "tokens_hidden tokens_own",
        RecordKind.COOCCURRENCES: "tool_a tool_b count average_distance last_updated",
        RecordKind.LEARNED_PAIRS: "id scope tool model dimensions vector confidence uses updated_at description_hash "
        "terms",
        RecordKind.OVERRIDES: "id kind tool scope key created_at expires_at reason",
        RecordKind.WARM_SETS: "principal client profile evidence probabilities requests distinct_tools created_at",
    }.items()
}
"""By kind, in the order in which they are written."""

_TIMES: Final = frozenset(
    {"started_at", "ended_at", "timestamp", "last_updated", "updated_at", "created_at", "expires_at"}
)
"""Columns in seconds since the epoch, which are written as moments in UTC."""

FileFormat = Literal["jsonl", "csv"]

MANIFEST: Final = "manifest.json"
FORMAT_VERSION: Final = 1
"""Changes when a reader of older exports would misread newer ones."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """Writes what a store holds since a time; `on_rows` is called with the number of further rows written."""

    store: ExportPort
    format_: FileFormat
    since: float
    on_rows: Callable[[int], None]

    def write_files(
        self, directory: Path, kinds: Sequence[RecordKind], about: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Write a file for each kind into a directory, which is made; last the manifest, with `about` in it.

        Return the name, rows, bytes and SHA-256 of each file, by kind.

        Raises:
            ConfigurationError: one of the files exists.
            RiglmError: one cannot be written.
        """
        paths = {kind: directory / f"{kind.value}.{self.format_}" for kind in kinds}
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in (*paths.values(), directory / MANIFEST):
                if path.exists():
                    raise ConfigurationError(f"{path} is there already — fix: name a directory without it")
            tables = {kind.value: self._write_file(path, kind) for kind, path in paths.items()}
            manifest = {"version": FORMAT_VERSION, "format": self.format_, **about, "tables": tables}
            with _create_file(directory / MANIFEST) as file:
                file.write(json.dumps(manifest, indent=2).encode() + b"\n")
        except OSError as error:
            what = f"the export cannot be written to {directory}"
            if is_full_disk(error):
                raise RiglmError(f"{what}: {full_disk(directory, error)}") from error
            raise RiglmError(f"{what} ({error.strerror}) — fix: name a directory that you may write to") from error
        return tables

    def write_stream(self, file: BinaryIO, kinds: Sequence[RecordKind]) -> dict[RecordKind, int]:
        """Write all kinds as lines of JSON that name their kind in `table`, or one kind as CSV; return their rows.

        Raises:
            ConfigurationError: several kinds as CSV.
        """
        if self.format_ == "csv" and len(kinds) != 1:
            raise ConfigurationError(
                "several tables cannot be written to a stream as CSV — fix: use --format jsonl or one --table, or name "
                "a directory"
            )
        counts = {kind: self._write_rows(file, kind, {"table": kind.value}) for kind in kinds}
        file.flush()
        return counts

    def _write_file(self, path: Path, kind: RecordKind) -> dict[str, Any]:
        with _create_file(path) as file:
            rows = self._write_rows(file, kind, {})
        with path.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        return {"file": path.name, "rows": rows, "bytes": path.stat().st_size, "sha256": digest}

    def _write_rows(self, file: BinaryIO, kind: RecordKind, first: Mapping[str, str]) -> int:
        """Write the rows of a kind, in JSON after the members `first`, and return their number."""
        # Lone surrogates, which strangers may put into names and no encoding holds, become question marks.
        text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="", write_through=True)
        table, columns, count = csv.writer(text), COLUMNS[kind], 0
        try:
            if self.format_ == "csv":
                table.writerow(columns)
            for rows in self.store.export(kind, self.since):
                plain = ({name: _to_plain(name, row) for name in columns} for row in rows)
                if self.format_ == "csv":
                    table.writerows(map(_to_cell, row.values()) for row in plain)
                else:
                    text.writelines(f"{_to_json({**first, **row})}\n" for row in plain)
                count += len(rows)
                self.on_rows(len(rows))
        finally:
            text.detach()  # the file stays open
        return count


def _to_plain(name: str, row: ExportRow) -> Any:
    value = row[name]
    if value is None or name not in _TIMES:
        return value
    return to_utc_datetime(value).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _to_cell(value: Any) -> Any:
    """Return a value of CSV: lists and objects are JSON, what is not known is empty."""
    return value if value is None or isinstance(value, str) else _to_json(value)


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@contextmanager
def _create_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that its owner alone may read, under its name once it is whole."""
    draft = path.with_name(f".{path.name}.part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
