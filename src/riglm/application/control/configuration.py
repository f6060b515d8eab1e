"""The configuration in force: looked at, and changed while riglm runs."""

import asyncio
import logging
import secrets
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, Protocol, TypeVar

from riglm.application.filtering.service import FilteringService
from riglm.application.prediction.prediction_settings import PredictionSettings
from riglm.application.prediction.service import PredictionService
from riglm.application.worker import Worker
from riglm.domain.control import (
    ConfigurationUpdate,
    ConflictError,
    ControlUnavailableError,
    FieldError,
    ForbiddenError,
    InvalidInputError,
    RedactedConfiguration,
)
from riglm.domain.errors import ConfigurationError
from riglm.domain.redaction import Redactor
from riglm.domain.schemas.settings import Settings
from riglm.ports.configuration import ConfigurationPort, KeyPath, StagedFile

PROVING_SECONDS: Final = 10.0
"""A predictor that is not made within this time is refused."""

_Value = TypeVar("_Value")

Commit = Callable[[], None]
"""Changes over to what was made ready: plain assignments, on the proxy's event loop."""


class ReloadHandler(Protocol):
    """A part of riglm that depends on the configuration."""

    @abstractmethod
    async def prepare(self, before: Settings, after: Settings) -> Commit | None:
        """Make ready for other settings, without anything of it to be noticed; None when it is all the same.

        Raises:
            ConfigurationError: it cannot be done; the text begins with the path of the setting.
        """


class ValueReloadHandler(ReloadHandler, Generic[_Value]):
    """A part that takes a new value at any time."""

    def __init__(self, read: Callable[[Settings], _Value], take: Callable[[_Value], None]) -> None:
        """`take` is given what `read` finds in the settings, whenever it is another value than before."""
        self._read = read
        self._take = take

    async def prepare(self, before: Settings, after: Settings) -> Commit | None:
        value = self._read(after)
        return None if value == self._read(before) else lambda: self._take(value)


class FilteringReloadHandler(ReloadHandler):
    """The filter: new decisions are made whole, and put in the place of the old ones at once."""

    def __init__(self, filtering: FilteringService, notify: Callable[[], None]) -> None:
        """`on_rules` starts to notify the clients whose list changed."""
        self._filtering = filtering
        self._notify = notify
        self._aside = BlockingJobRunner()

    async def prepare(self, before: Settings, after: Settings) -> Commit | None:
        rules = after.filtering
        if (rules, after.predictor.kind, after.prices) == (before.filtering, before.predictor.kind, before.prices):
            return None
        commit = await self._aside.do(lambda: self._prepared(before, after))

        def changed_over() -> None:
            commit()
            self._notify()

        return changed_over

    def _prepared(self, before: Settings, after: Settings) -> Commit:
        """Make the decisions; long lists of patterns take their time."""
        known = set(before.filtering.contradictions)
        for name in after.filtering.contradictions:
            if name not in known:
                raise ConfigurationError(
                    f"filtering.allowlist: {name!r} is in filtering.denylist as well — fix: keep it in one of them"
                )
        return self._filtering.prepared(after.filtering, after.predictor.kind, after.prices.prices())


class PredictionReloadHandler(ReloadHandler):
    """Prediction: a predictor is made once to see that it can be, and learns from the record before it answers."""

    def __init__(
        self,
        prediction: PredictionService,
        plan: Callable[[Settings], PredictionSettings],
        prove: Callable[[Settings], object],
    ) -> None:
        """`prove` makes the predictor; it blocks, and raises ConfigurationError."""
        self._prediction = prediction
        self._plan = plan
        self._prove = prove
        self._aside = BlockingJobRunner()

    async def prepare(self, before: Settings, after: Settings) -> Commit | None:
        if _about_prediction(before) == _about_prediction(after):
            return None
        is_new = after.predictor != before.predictor or (_predicts(after) and not _predicts(before))
        if is_new:
            try:
                await self._aside.do(lambda: self._made(after), PROVING_SECONDS)
            except TimeoutError:
                raise ConfigurationError(
                    f"predictor.kind: {after.predictor.kind!r} was not made within {PROVING_SECONDS:g} s — fix: "
                    "a different server"
                ) from None
        plan = self._plan(after)
        return lambda: self._prediction.follow(plan, reload=after.predictor != before.predictor)

    def _made(self, after: Settings) -> None:
        try:
            self._prove(after)
        except Exception:
            raise
        except BaseException as error:  # a plug-in may even try to exit
            reason = type(error).__name__
            message = f"predictor.kind: {after.predictor.kind!r} cannot be loaded ({reason}) — fix: choose another kind"
            raise ConfigurationError(message) from error


class BlockingJobRunner:
    """Runs blocking jobs, one at a time on a separate thread; one that hangs delays no later job."""

    def __init__(self) -> None:
        """The thread starts with the first job."""
        self._worker: Worker | None = None

    async def do(
        self,
        job: Callable[[], _Value],
        seconds: float | None = None,
        *,
        on_late: Callable[[_Value], object] = lambda _: None,
    ) -> _Value:
        """Return the result of a job; if it takes longer than `seconds`, raise and pass the result to `on_late` later.

        Raises:
            TimeoutError: it took longer.
        """
        if self._worker is None:
            self._worker = Worker("riglm-configuration")
            self._worker.start()
            weakref.finalize(self, self._worker.stop)
        future = self._worker.submit(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:
            self._worker.stop()
            self._worker = None
            future.add_done_callback(lambda late: _late(late, on_late))
            raise


def _late(future: "Future[_Value]", on_late: Callable[[_Value], object]) -> None:
    if not future.cancelled() and future.exception() is None:
        on_late(future.result())


def _predicts(settings: Settings) -> bool:
    return settings.filtering.is_on and settings.filtering.strategy == "prediction"


def _about_prediction(settings: Settings) -> tuple[object, ...]:
    return settings.predictor, settings.learning, settings.filtering.period, _predicts(settings)


FOLLOWED: Final[tuple[KeyPath, ...]] = (
    ("filtering",),
    ("prices",),
    ("predictor",),
    ("learning",),
    ("retention",),
    ("logging",),
    ("privacy", "arguments"),
    ("sessions", "meta_keys"),
    ("sessions", "idle_gap"),
    ("knowledge", "mix"),
    ("knowledge", "top_k"),
    ("knowledge", "floor"),
    ("knowledge", "min_floor"),
    ("knowledge", "max_candidates_per_source"),
)
"""What counts at once when it is changed; all else is read when riglm starts."""

_SERVERS: Final = frozenset({"upstream", "mcpServers"})
_FILE_SECONDS: Final = 10.0
_VERSION_BITS: Final = 48
"""Versions begin anywhere, so that one that another process gave is none of this one."""

_log: Final = logging.getLogger("riglm.control")


class LiveConfiguration:
    """Changes the configuration whole or not at all, one change after the other.

    Every part that follows it makes itself ready first, which may fail; then all change over in one step, between two
    requests. What runs ends as it began.
    """

    def __init__(self, settings: Settings, documents: ConfigurationPort, followers: Sequence[ReloadHandler]) -> None:
        """`settings` are in force, and the followers go by them."""
        self._settings = settings
        self._documents = documents
        self._followers = tuple(followers)
        self._version = secrets.randbits(_VERSION_BITS)
        self._shown: Mapping[str, Any] | None = None
        self._lock = asyncio.Lock()
        self._aside = BlockingJobRunner()
        self._changes: set[asyncio.Task[ConfigurationUpdate]] = set()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._settings

    def shown(self) -> RedactedConfiguration:
        """Return the configuration with masks in the place of secrets."""
        if self._shown is None:
            self._shown = self._documents.shown(self._settings)
        return RedactedConfiguration(version=self._version, document=self._shown)

    async def put(
        self, document: Mapping[str, Any], *, expected_version: int | None = None, persist: bool = False
    ) -> ConfigurationUpdate:
        """Change what `document` names, whole or not at all; with `persist`, in the file as well.

        Raises:
            InvalidInputError: the whole would not be valid, or a key is read only at start and is not to be written.
            ForbiddenError: a key that cannot be changed this way.
            ConflictError: `expected_version` is not the one in force, or there is no file that can be written.
        """
        change = asyncio.create_task(self._put(document, expected_version, persist=persist))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return await asyncio.shield(change)

    async def _put(
        self, document: Mapping[str, Any], expected_version: int | None, *, persist: bool
    ) -> ConfigurationUpdate:
        async with self._lock:
            if expected_version not in {None, self._version}:
                raise ConflictError(
                    f"the configuration is at version {self._version}, not {expected_version} any more — fix: read it "
                    "again, and change what it is now"
                )
            before = self._settings
            wanted, paths = await self._aside.do(lambda: self._read(before, document))
            late = [path for path in paths if not _is_followed(path, before)]
            _require_leave(paths, before)
            if late and not persist:
                raise InvalidInputError(*map(_too_late, late))
            after = _in_force(before, wanted)
            shown = await self._aside.do(lambda: self._documents.shown(after))
            commits = await self._prepared(before, after) if len(late) < len(paths) else []
            if persist:
                await self._write(document)
            self._commit(commits, after, shown, [path for path in paths if path not in late])
            return ConfigurationUpdate(version=self._version, document=shown, restart=tuple(map(".".join, late)))

    def _read(self, before: Settings, document: Mapping[str, Any]) -> tuple[Settings, tuple[KeyPath, ...]]:
        """What is wanted, and where it differs; takes its time where much is wanted."""
        wanted = self._documents.merged(before, document)
        return wanted, self._documents.differences(before, wanted)

    async def _prepared(self, before: Settings, after: Settings) -> list[Commit]:
        commits = []
        try:
            for follower in self._followers:
                commit = await follower.prepare(before, after)
                if commit is not None:
                    commits.append(commit)
        except ConfigurationError as error:
            covered = Redactor((*before.secrets(), *after.secrets()))
            raise InvalidInputError(*(_fault(covered(line)) for line in str(error).splitlines())) from None
        return commits

    async def _write(self, document: Mapping[str, Any]) -> None:
        settings = self._settings

        def write() -> StagedFile | None:
            return self._documents.write_temporary(settings, document, lambda path: _refusal(path, settings) is None)

        try:
            written = await self._aside.do(write, _FILE_SECONDS, on_late=_discarded)
        except TimeoutError:
            raise ControlUnavailableError(f"the file could not be written within {_FILE_SECONDS:g} s") from None
        if written is None:
            return
        try:
            await self._aside.do(written.take_over)
        except BaseException:
            await self._aside.do(written.discard)
            raise

    def _commit(
        self, commits: Sequence[Commit], after: Settings, shown: Mapping[str, Any], paths: Sequence[KeyPath]
    ) -> None:
        """Change over: nothing here waits, and what fails against all expectation does not hold up the others."""
        for commit in commits:
            try:
                commit()
            except Exception:  # noqa: BLE001  # half of the parts must not go by one configuration, half by another
                _log.exception("a part did not change over to the new configuration")
        if paths:
            self._settings, self._shown = after, shown
            self._version += 1
            keys = [".".join(path) for path in paths]
            _log.info("the configuration was changed", extra={"version": self._version, "changed": keys})


def _is_followed(path: KeyPath, settings: Settings) -> bool:
    if path == ("sessions", "idle_gap") and settings.state.kind != "memory":
        return False  # the processes that share sessions agree on how long these are kept
    return any(path[: len(followed)] == followed for followed in FOLLOWED)


def _in_force(before: Settings, wanted: Settings) -> Settings:
    """The settings before a change, with those that count at once as they are wanted."""
    sections: dict[str, dict[str, Any]] = {}
    for section, *key in FOLLOWED:
        if not key:
            continue
        if _is_followed((section, *key), before):
            sections.setdefault(section, {})[key[0]] = getattr(getattr(wanted, section), key[0])
    parts = {name: getattr(before, name).model_copy(update=update) for name, update in sections.items()}
    whole = {section: getattr(wanted, section) for section, *key in FOLLOWED if not key}
    return before.model_copy(update={**whole, **parts})


def _require_leave(paths: Sequence[KeyPath], settings: Settings) -> None:
    """Raise Forbidden when one of these may not be changed in this way."""
    for path in paths:
        refusal = _refusal(path, settings)
        if refusal is not None:
            raise ForbiddenError(f"{'.'.join(path)}: {refusal}")


def _refusal(path: KeyPath, settings: Settings) -> str | None:
    """Why a path may not be changed in this way; None when it may."""
    if path[0] == "control":
        return "access to riglm is not changed through itself — fix: change the file, and restart riglm"
    if path[0] in _SERVERS and not settings.control.allow_upstream_changes:
        return (
            "servers are not changed in this way — fix: change the file and restart riglm, or set "
            "control.allow_upstream_changes there"
        )
    return None


def _too_late(path: KeyPath) -> FieldError:
    detail = "this key is read at the start only — fix: send persist=true, and restart riglm"
    return FieldError(path=".".join(path), detail=detail)


def _fault(line: str) -> FieldError:
    """A line of an error that begins with the path that it is about."""
    path, colon, detail = line.partition(": ")
    is_path = bool(colon) and path.split(".")[0] in Settings.model_fields
    return FieldError(path=path, detail=detail) if is_path else FieldError(path="", detail=line)


def _discarded(written: StagedFile | None) -> None:
    if written is not None:
        written.discard()
