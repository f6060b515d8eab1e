"""Rows written as Parquet, which needs pyarrow: `pip install 'riglm[parquet]'`."""

from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from riglm.adapters.export.files import COLUMNS, RowWriter, Type, clean, json_text, moment
from riglm.ports.maintenance import ExportRow, RecordKind

_ROWS_IN_A_GROUP: Final = 20_000

_TYPES: Final = {
    Type.TEXT: pa.string(),
    Type.TIME: pa.timestamp("us", tz="UTC"),
    Type.NUMBER: pa.float64(),
    Type.INTEGER: pa.int64(),
    Type.FLAG: pa.bool_(),
    Type.TEXTS: pa.list_(pa.string()),
    Type.NUMBERS: pa.list_(pa.float32()),
    Type.INTEGERS: pa.list_(pa.int64()),
    Type.OBJECT: pa.string(),
}


class Parquet(RowWriter):
    """A file with typed columns, compressed; objects are JSON."""

    def __init__(self, file: BinaryIO, kind: RecordKind) -> None:
        self._columns = COLUMNS[kind]
        self._schema = pa.schema([(name, _TYPES[type_]) for name, type_ in self._columns.items()])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._waiting: list[ExportRow] = []

    def write(self, rows: Sequence[ExportRow]) -> None:
        self._waiting += rows
        if len(self._waiting) >= _ROWS_IN_A_GROUP:
            self._write_group()

    def close(self) -> None:
        if self._waiting:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        rows, self._waiting = self._waiting, []
        try:
            table = self._table(rows)
        except UnicodeEncodeError:
            table = self._table([clean(row) for row in rows])
        self._writer.write_table(table)

    def _table(self, rows: Sequence[ExportRow]) -> pa.Table:
        columns = {name: [_value(row[name], type_) for row in rows] for name, type_ in self._columns.items()}
        return pa.table(columns, schema=self._schema)


def _value(value: Any, type_: Type) -> Any:
    if value is None:
        return None
    match type_:
        case Type.TIME:
            return moment(value)
        case Type.OBJECT:
            return json_text(value)
    return value
