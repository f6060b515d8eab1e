"""Vectors that were computed before, kept in the database or in memory."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.engine import TIMEOUT_SECONDS
from riglm.adapters.analytics.rows import DatabaseRow, from_bytes, insert_into, is_sound, rows_in, slices, to_bytes
from riglm.adapters.analytics.tables import cached_vector
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.ports.embedder import VectorCachePort

if TYPE_CHECKING:
    from riglm.domain.prediction import Vector

_FRESH_SECONDS: Final = 86_400.0  # use is noted once a day: reading should not write each time
_ROW_BATCH_SIZE: Final = 200  # a transaction holds up the other writers of the database
_KEPT_SHARE: Final = 0.9  # of the limit, so that not every new vector removes old ones
_COUNTED_SHARE: Final = 100  # a sum costs 10 ms in a full cache: it is made for each 1/100 of the limit that is new

_size: Final[Any] = sa.func.coalesce(cached_vector.c.rows, 1) * cached_vector.c.dimensions * 4


class SqlVectors(VectorCachePort):
    """Keeps vectors in the SQLite or PostgreSQL database at a URL. Opened by the first use, on the thread of that use.

    `timeout` is as for `SqlAnalytics`; `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        url: str,
        *,
        max_bytes: int = 80 << 20,  # 50,000 vectors of the bundled model
        timeout: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = Database(url, timeout=timeout)
        self._max_bytes = max_bytes
        self._clock = clock
        self._opening = threading.Lock()
        self._uncounted = max_bytes  # what earlier processes put

    def close(self) -> None:
        """Close all connections; another use opens it again."""
        self._database.close()

    def get_many(self, model: str, hashes: Sequence[str]) -> Mapping[str, "Vector"]:
        found: dict[str, Vector] = {}
        stale: list[str] = []
        fresh = self._clock() - _FRESH_SECONDS
        with self._opened().reading() as connection:
            query = sa.select(cached_vector).where(cached_vector.c.model == model)
            for row in rows_in(connection, query, cached_vector.c.hash, hashes):
                found[row.hash] = from_bytes(row.data, row.dimensions, row.rows)
                if row.used_at < fresh:
                    stale.append(row.hash)
        if stale:
            with contextlib.suppress(AnalyticsUnavailableError), self._database.writing() as connection:
                for some in slices(stale):  # what was found is of more worth than when it was used
                    chosen = (cached_vector.c.model == model) & cached_vector.c.hash.in_(some)
                    connection.execute(sa.update(cached_vector).where(chosen).values(used_at=self._clock()))
        return found

    def put_many(self, model: str, vectors: Mapping[str, "Vector"]) -> None:
        new = (_row(model, hash_, vector, self._clock()) for hash_, vector in vectors.items() if is_sound(vector))
        while some := list(islice(new, _ROW_BATCH_SIZE)):
            with self._opened().writing() as connection:
                connection.execute(insert_into(connection, cached_vector).on_conflict_do_nothing(), some)
        self._uncounted += sum(vector.nbytes for vector in vectors.values())
        if self._uncounted * _COUNTED_SHARE >= self._max_bytes and self._is_over_full():
            with self._database.writing() as connection:
                _prune(connection, self._max_bytes)

    def _opened(self) -> Database:
        with self._opening:
            if not self._database.is_open:
                self._database.open()
        return self._database

    def _is_over_full(self) -> bool:
        with self._opened().reading() as connection:
            size = connection.execute(sa.select(sa.func.coalesce(sa.func.sum(_size), 0))).scalar_one()
        self._uncounted = 0
        return bool(size > self._max_bytes)


def _row(model: str, hash_: str, vector: "Vector", at: float) -> DatabaseRow:
    return {
        "model": model,
        "hash": hash_,
        "rows": len(vector) if vector.ndim == 2 else None,
        "dimensions": vector.shape[-1],
        "data": to_bytes(vector),
        "used_at": at,
    }


def _prune(connection: sa.Connection, max_bytes: int) -> None:
    """Remove what was not used for longest, down to a share of the limit."""
    key = (cached_vector.c.model, cached_vector.c.hash)
    order = (cached_vector.c.used_at.desc(), *key)
    ranked = sa.select(*key, sa.func.sum(_size).over(order_by=order).label("size_so_far")).subquery()
    excess = ranked.c.size_so_far > int(max_bytes * _KEPT_SHARE)
    connection.execute(
        sa.delete(cached_vector).where(sa.tuple_(*key).in_(sa.select(ranked.c.model, ranked.c.hash).where(excess)))
    )
