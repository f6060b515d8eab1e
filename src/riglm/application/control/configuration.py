"""The configuration in force: shown, and changed while riglm runs."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from riglm.application.worker import run_in_daemon_thread
from riglm.domain import errors
from riglm.domain.redaction import Redactor
from riglm.domain.schemas.changes import (
    KeyPath,
    disclose,
    find_changes,
    find_differences,
    is_changeable,
    leave_out,
    merge_changes,
    read_changes,
    store_changes,
)
from riglm.domain.schemas.settings import Settings
from riglm.ports.analytics import SettingChangesPort

if TYPE_CHECKING:
    from riglm.application.filtering.filtering_service import FilteringService
    from riglm.application.prediction.prediction_service import PredictionService
    from riglm.application.prediction.prediction_settings import PredictionSettings

PROVING_SECONDS: Final = 10.0
"""A predictor that is not made within this time is refused."""

_Value = TypeVar("_Value")

Commit = Callable[[], None]
"""Changes over to what was made ready: plain assignments, on the proxy's event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedConfiguration:
    """The configuration in force, with masks in the place of secrets.

    `version` grows with every change, and differs in every process.
    """

    version: int
    document: Mapping[str, Any]


ReloadHandler = Callable[[Settings, Settings], Awaitable[Commit | None]]
"""Makes a part of riglm ready to go from one configuration to another, without anything of it to be noticed.

Returns None when it is all the same for the part. Raises ConfigurationError if it cannot be done; the text begins with
the path of the setting.
"""


def reload_value(read: Callable[[Settings], _Value], take: Callable[[_Value], None]) -> ReloadHandler:
    """Return the handler for a part that takes a new value at any time: `take` is given what `read` finds."""

    async def prepare(before: Settings, after: Settings) -> Commit | None:
        value = read(after)
        return None if value == read(before) else lambda: take(value)

    return prepare


def reload_filtering(filtering: "FilteringService", notify: Callable[[], None]) -> ReloadHandler:
    """Return the handler for the filter: new decisions are made whole, and put in the place of the old ones at once.

    `notify` starts to notify the clients whose list changed.
    """

    async def prepare(before: Settings, after: Settings) -> Commit | None:
        rules = after.filtering
        if (rules, after.predictor.kind, after.prices) == (before.filtering, before.predictor.kind, before.prices):
            return None

        def decide() -> Commit:
            known = set(before.filtering.contradictions)
            for name in rules.contradictions:
                if name not in known:
                    raise errors.ConfigurationError(
                        f"filtering.allowlist: {name!r} is in filtering.denylist as well — fix: keep it in one of them"
                    )
            return filtering.prepared(rules, after.predictor.kind, after.prices.prices())

        commit = await run_aside(decide)  # long lists of patterns take their time

        def change_over() -> None:
            commit()
            notify()

        return change_over

    return prepare


def reload_prediction(
    prediction: "PredictionService",
    plan: Callable[[Settings], "PredictionSettings"],
    prove: Callable[[Settings], object],
) -> ReloadHandler:
    """Return the handler for prediction: a predictor is made once to see that it can be, and learns before it answers.

    `prove` makes the predictor; it blocks, and raises ConfigurationError.
    """

    async def prepare(before: Settings, after: Settings) -> Commit | None:
        if _about_prediction(before) == _about_prediction(after):
            return None
        kind, is_other = after.predictor.kind, after.predictor != before.predictor

        def make() -> None:
            try:
                prove(after)
            except (SystemExit, KeyboardInterrupt) as error:  # a plug-in may even try to exit
                reason = type(error).__name__
                message = f"predictor.kind: {kind!r} cannot be loaded ({reason}) — fix: choose another kind"
                raise errors.ConfigurationError(message) from error

        if is_other or (_predicts(after) and not _predicts(before)):
            try:
                await run_aside(make, PROVING_SECONDS)
            except TimeoutError:
                what = f"predictor.kind: {kind!r} was not made within {PROVING_SECONDS:g} s"
                raise errors.ConfigurationError(f"{what} — fix: a different server") from None
        planned = plan(after)
        return lambda: prediction.follow(planned, reload=is_other)

    return prepare


async def run_aside(job: Callable[[], _Value], seconds: float | None = None) -> _Value:
    """Return the result of a blocking job on a thread that the end of the process does not wait for.

    Raises:
        TimeoutError: it takes longer than `seconds`.
    """
    return await asyncio.wait_for(run_in_daemon_thread("riglm-configuration", job), seconds)


def _predicts(settings: Settings) -> bool:
    return settings.filtering.is_on and settings.filtering.strategy == "prediction"


def _about_prediction(settings: Settings) -> tuple[object, ...]:
    return settings.predictor, settings.learning, settings.filtering.period, _predicts(settings)


_STORE_SECONDS: Final = 10.0
_VERSION_BITS: Final = 48
"""Versions begin anywhere, so that one that another process gave is none of this one."""

_log: Final = logging.getLogger("riglm.control")


class LiveConfiguration:
    """The settings that riglm was started with, and what was changed since, in this process or in a different one.

    Changes are kept in the store. A request makes all of its changes or none, one request after the other: every part
    that depends on them prepares itself first, which may fail; then all change over in one step, between two requests.
    What runs ends as it began.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        open_store: Callable[[], AbstractContextManager[SettingChangesPort]] | None = None,
        fixed: Collection[KeyPath] = (),
        create_handlers: Callable[[], Sequence[ReloadHandler]] = tuple,
    ) -> None:
        """Changes are kept in the store, without one in this process only.

        The values at `fixed` paths were given on the command line, so they stay. The handlers apply changed settings to
        the parts of the process; they are created for the first change.
        """
        self._start = settings
        self._settings = settings
        self._open_store = open_store
        self._create_handlers = create_handlers
        self._fixed = frozenset(fixed)
        self._stored: Mapping[str, Any] = {}
        self._version = secrets.randbits(_VERSION_BITS)
        self._lock = asyncio.Lock()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._settings

    def shown(self) -> RedactedConfiguration:
        """The configuration with masks in the place of secrets."""
        return RedactedConfiguration(version=self._version, document=disclose(self._settings))

    async def put(self, document: Mapping[str, Any], *, expected_version: int | None = None) -> RedactedConfiguration:
        """Change what `document` names, whole or not at all, and store it for other processes and later starts.

        Raises:
            InvalidInputError: the whole would not be valid, or a key is read at the start only.
            ConflictError: `expected_version` is not the one in force, or the command line sets a key.
            ControlUnavailableError: the store is unavailable.
        """
        async with self._lock:
            if self._open_store is not None:
                stored = await _ask(self._open_store, lambda store: store.list_setting_changes())
                if stored != self._stored:
                    await self._apply(stored)
            if expected_version not in {None, self._version}:
                raise errors.ConflictError(
                    f"the configuration is at version {self._version}, not {expected_version} any more — fix: read it "
                    "again, and change what it is now"
                )
            before, disclosed = self._settings, self.shown().document

            def read() -> tuple[dict[KeyPath, Any], Settings, list[KeyPath]]:
                changes = find_changes(document, disclosed)
                after = merge_changes(before, changes)
                return changes, after, find_differences(before, after)

            changes, after, differences = await run_aside(read)  # many values take their time
            self._require_changeable(differences)
            if differences:
                commits = await self._prepare(before, after)
                made = {path: value for path, value in changes.items() if _has_effect(path, differences)}
                stored = store_changes(self._stored, made)
                rows = {key: value for key, value in stored.items() if value != self._stored.get(key, _MISSING)}
                if self._open_store is not None:
                    await _ask(self._open_store, lambda store: store.put_setting_changes(rows))
                self._stored = stored
                self._commit(commits, after, differences)
            return self.shown()

    async def refresh(self, read: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Apply the stored changes that `read` returns."""
        async with self._lock:
            stored = await read()
            if stored != self._stored:
                await self._apply(stored)

    async def _apply(self, stored: Mapping[str, Any]) -> None:
        """Apply what the store holds; a change that cannot be applied is logged once, and leaves the others."""
        before, self._stored = self._settings, stored
        changes = read_changes(stored, self._start, self._fixed)
        while True:
            try:
                after = merge_changes(self._start, changes)
                commits = await self._prepare(before, after)
            except errors.InvalidInputError as error:
                _log.error("%s — this changed setting is not applied; `riglm config reset` removes it", error)
                if not changes:
                    return
                changes = leave_out(changes, error.faults)
            else:
                self._commit(commits, after, find_differences(before, after))
                return

    def _require_changeable(self, paths: Sequence[KeyPath]) -> None:
        late = [path for path in paths if not is_changeable(path, self._start)]
        if late:
            detail = "this key is read at the start only — fix: set it in riglm.yaml, and restart riglm"
            raise errors.InvalidInputError(*(errors.FieldError(path=".".join(path), detail=detail) for path in late))
        if fixed := ", ".join(".".join(path) for path in paths if path in self._fixed):
            raise errors.ConflictError(
                f"{fixed}: set on the command line, which comes first — fix: start riglm without that option"
            )

    async def _prepare(self, before: Settings, after: Settings) -> list[Commit]:
        try:
            prepared = [await handler(before, after) for handler in self._handlers]
        except errors.ConfigurationError as error:
            redact = Redactor((*before.secrets(), *after.secrets()))
            raise errors.InvalidInputError(*(_to_fault(redact(line)) for line in str(error).splitlines())) from None
        return [commit for commit in prepared if commit is not None]

    @cached_property
    def _handlers(self) -> Sequence[ReloadHandler]:
        return self._create_handlers()

    def _commit(self, commits: Sequence[Commit], after: Settings, differences: Sequence[KeyPath]) -> None:
        """Change over: nothing here waits, and what fails against all expectation does not hold up the others."""
        for commit in commits:
            try:
                commit()
            except Exception:  # noqa: BLE001  # half of the parts must not go by one configuration, half by another
                _log.exception("a part did not change over to the new configuration")
        self._settings = after
        self._version += 1
        keys = [".".join(path) for path in differences]
        _log.info("the configuration was changed", extra={"version": self._version, "changed": keys})


async def _ask(
    open_store: Callable[[], AbstractContextManager[SettingChangesPort]], ask: Callable[[SettingChangesPort], _Value]
) -> _Value:
    """Return an answer of the store; ControlUnavailableError if it has none soon."""

    def open_and_ask() -> _Value:
        with open_store() as store:
            return ask(store)

    try:
        return await run_aside(open_and_ask, _STORE_SECONDS)
    except (errors.AnalyticsUnavailableError, TimeoutError) as error:
        raise errors.ControlUnavailableError("the change cannot be stored now: try again later") from error


_MISSING: Final = object()


def _has_effect(path: KeyPath, differences: Sequence[KeyPath]) -> bool:
    """True if there is a difference at a path, above it or below it."""
    return any(path[: len(each)] == each[: len(path)] for each in differences)


def _to_fault(line: str) -> errors.FieldError:
    """A line of an error that begins with the path that it is about."""
    path, colon, detail = line.partition(": ")
    is_path = bool(colon) and path.split(".")[0] in Settings.model_fields
    return errors.FieldError(path=path, detail=detail) if is_path else errors.FieldError(path="", detail=line)
