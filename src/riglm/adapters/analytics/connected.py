"""Connections to a database, and to which file if it is one."""

import logging
import time
from typing import Final

from sqlalchemy import Engine

from riglm.adapters.analytics.engine import is_damage, reason_of, safe_url, translated
from riglm.adapters.analytics.schema import bring_up_to_date
from riglm.adapters.analytics.sqlite import database_file
from riglm.adapters.analytics.store_file import StoreFile, make
from riglm.domain.errors import AnalyticsUnavailable, NoStore

_SOUND_SECONDS: Final = 5.0
"""Seconds for which a check counts: narrowing a batch down to one record checks the whole file once, not each time."""

_log: Final = logging.getLogger("riglm.analytics")


class FileChanged(AnalyticsUnavailable):
    """The file was replaced, quarantined or repaired meanwhile: the operation must be repeated in the current one."""


class FileSound(AnalyticsUnavailable):
    """SQLite calls the file damaged in what was done, and finds no damage when it checks all of it."""


class Connected:
    """Connections through `engine` to the database at a URL, in SQLite to the file that is there when they begin.

    Every failure arrives as `AnalyticsUnavailable`. With `sets_aside` a file that proves damaged is mended, or
    set aside.
    """

    def __init__(self, url: str, engine: Engine, *, sets_aside: bool) -> None:
        self.engine = engine
        self._url = url
        self._sets_aside = sets_aside
        self._file: StoreFile | None = None
        self._is_aside = False
        self._sound_until = 0.0

    @property
    def is_in_place(self) -> bool:
        """Whether the file, if there is one, still is the database's."""
        return self._file is None or self._file.is_in_place

    def begin(self) -> None:
        """Connect, and bring the schema up to date.

        Raises `SchemaTooNew` when a newer riglm wrote the database, `FileChanged` when it was set aside.
        """
        with translated(self._url):
            path = database_file(self._url)
            if path is not None:
                make(path)
                self._file = StoreFile(path)
        try:
            with translated(self._url):
                if self._file is not None:
                    self._file.look()
                bring_up_to_date(self.engine, self._url)
        except AnalyticsUnavailable as error:
            self.look_after(error)
            raise
        if self._file is not None:
            self._file.note_ours()
            self._file.note_journal()

    def look_after(self, error: Exception) -> None:
        """Raise `FileChanged` when the file was replaced, or is damaged and now mended or set aside.

        Raises `FileSound` when SQLite checked it recently and found no damage.
        """
        if isinstance(error, AnalyticsUnavailable) and not self.is_in_place:
            raise FileChanged(f"{error}; the file was replaced meanwhile") from error
        if not self._sets_aside or self._file is None or isinstance(error, NoStore) or not is_damage(error):
            return
        if time.monotonic() >= self._sound_until:
            self._mend(self._file, error)
            self._sound_until = time.monotonic() + _SOUND_SECONDS
        raise FileSound(f"{reason_of(error)}, and a check of the whole file finds no damage") from error

    def _mend(self, file: StoreFile, error: Exception) -> None:
        try:
            with translated(self._url):
                is_mended = file.mend()
        except AnalyticsUnavailable as failure:
            raise AnalyticsUnavailable(f"{error}; it was not set aside: {failure}") from error
        if is_mended:
            self._is_aside = not self.is_in_place
            raise FileChanged(
                f"the file of the analytics store {safe_url(self._url)} was mended or set aside"
            ) from error

    def close(self) -> None:
        """End all connections; the journal of a file that was replaced is kept from the one that came."""
        try:
            if self._file is not None and not self._file.is_in_place:
                if not self._is_aside:
                    _log.warning("the file of %s was removed or replaced", safe_url(self._url))
                with translated(self._url):
                    self._file.take_journal_away()
        finally:
            self.engine.dispose()
