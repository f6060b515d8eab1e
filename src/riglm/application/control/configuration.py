"""The configuration in force: looked at, and changed while riglm runs."""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from riglm.application.control.following import Aside, Commit, Follower
from riglm.domain.control import (
    ConfigurationChanged,
    ConfigurationShown,
    Conflict,
    ControlUnavailable,
    Fault,
    Forbidden,
    Invalid,
)
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings
from riglm.domain.secret import Redactor
from riglm.ports.configuration import ConfigurationPort, KeyPath, WrittenAside
from riglm.ports.control import LiveConfigurationPort

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


class LiveConfiguration(LiveConfigurationPort):
    """Changes the configuration whole or not at all, one change after the other.

    Every part that follows it makes itself ready first, which may fail; then all change over in one step, between two
    requests. What runs ends as it began.
    """

    def __init__(self, settings: Settings, documents: ConfigurationPort, followers: Sequence[Follower]) -> None:
        """`settings` are in force, and the followers go by them."""
        self._settings = settings
        self._documents = documents
        self._followers = tuple(followers)
        self._version = secrets.randbits(_VERSION_BITS)
        self._shown: Mapping[str, Any] | None = None
        self._lock = asyncio.Lock()
        self._aside = Aside()
        self._changes: set[asyncio.Task[ConfigurationChanged]] = set()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._settings

    def shown(self) -> ConfigurationShown:
        """The configuration with masks in the place of secrets."""
        if self._shown is None:
            self._shown = self._documents.shown(self._settings)
        return ConfigurationShown(version=self._version, document=self._shown)

    async def put(
        self, document: Mapping[str, Any], *, expected_version: int | None = None, persist: bool = False
    ) -> ConfigurationChanged:
        """Change what `document` names; a change that was begun is not left half done when nobody waits for it."""
        change = asyncio.create_task(self._put(document, expected_version, persist=persist))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return await asyncio.shield(change)

    async def _put(
        self, document: Mapping[str, Any], expected_version: int | None, *, persist: bool
    ) -> ConfigurationChanged:
        async with self._lock:
            if expected_version not in {None, self._version}:
                raise Conflict(
                    f"the configuration is at version {self._version}, not {expected_version} any more — fix: read it "
                    "again, and change what it is now"
                )
            before = self._settings
            wanted, paths = await self._aside.do(lambda: self._read(before, document))
            late = [path for path in paths if not _is_followed(path, before)]
            _require_leave(paths, before)
            if late and not persist:
                raise Invalid(*map(_too_late, late))
            after = _in_force(before, wanted)
            shown = await self._aside.do(lambda: self._documents.shown(after))
            commits = await self._prepared(before, after) if len(late) < len(paths) else []
            if persist:
                await self._write(document)
            self._commit(commits, after, shown, [path for path in paths if path not in late])
            return ConfigurationChanged(version=self._version, document=shown, restart=tuple(map(".".join, late)))

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
            raise Invalid(*(_fault(covered(line)) for line in str(error).splitlines())) from None
        return commits

    async def _write(self, document: Mapping[str, Any]) -> None:
        settings = self._settings

        def write() -> WrittenAside | None:
            return self._documents.write_aside(settings, document, lambda path: _refusal(path, settings) is None)

        try:
            written = await self._aside.do(write, _FILE_SECONDS, on_late=_discarded)
        except TimeoutError:
            raise ControlUnavailable(f"the file could not be written within {_FILE_SECONDS:g} s") from None
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
            raise Forbidden(f"{'.'.join(path)}: {refusal}")


def _refusal(path: KeyPath, settings: Settings) -> str | None:
    """Why a path may not be changed in this way; None when it may."""
    if path[0] == "control":
        return "access to riglm is not changed through itself — fix: change the file, and start riglm anew"
    if path[0] in _SERVERS and not settings.control.allow_upstream_changes:
        return (
            "servers are not changed in this way — fix: change the file and start riglm anew, or set "
            "control.allow_upstream_changes there"
        )
    return None


def _too_late(path: KeyPath) -> Fault:
    detail = "this key is read at the start only — fix: ask with persist=true, and start riglm anew"
    return Fault(path=".".join(path), detail=detail)


def _fault(line: str) -> Fault:
    """A line of an error that begins with the path that it is about."""
    path, colon, detail = line.partition(": ")
    is_path = bool(colon) and path.split(".")[0] in Settings.model_fields
    return Fault(path=path, detail=detail) if is_path else Fault(path="", detail=line)


def _discarded(written: WrittenAside | None) -> None:
    if written is not None:
        written.discard()
