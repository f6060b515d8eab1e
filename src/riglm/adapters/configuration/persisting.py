"""The configuration file, changed without losing anything that people wrote into it."""

import contextlib
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from riglm.adapters.configuration import merging
from riglm.adapters.configuration.document import FileAsRead
from riglm.adapters.configuration.loading import Configuration, default_store, load
from riglm.adapters.configuration.merging import disclosed_document as document_of
from riglm.adapters.configuration.problem import dotted, setter_of
from riglm.adapters.configuration.yaml_text import YamlNotEditableError
from riglm.domain.control import ConflictError, FieldError, InvalidInputError
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings
from riglm.domain.shortage import failed_write
from riglm.ports.configuration import ConfigurationPort, KeyPath, StagedFile


def open_temporary(target: Path) -> tuple[int, Path]:
    """Create a file next to this one, for its user only: a descriptor to write to, and its path.

    Raises:
        OSError: the directory takes no file.
    """
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.riglm-", suffix=target.suffix)
    return descriptor, Path(name)


_BOM = b"\xef\xbb\xbf"
_ANYBODY_WRITES: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class ConfigurationDocuments(ConfigurationPort):
    """Changes to the configuration that riglm was started with, and to the file that it was read from."""

    def __init__(
        self, configuration: Configuration, environment: Mapping[str, str] | None = None, directory: Path | None = None
    ) -> None:
        """The environment and working directory are those that the configuration was read in."""
        self._environment = os.environ if environment is None else environment
        self._directory = directory or Path.cwd()
        self._file = None if configuration.file is None else self._directory / configuration.file
        self._options = replace(configuration.options, config=self._file)
        self._as_read = FileAsRead(configuration.settings)

    def shown(self, settings: Settings) -> dict[str, Any]:
        return document_of(settings)

    def merged(self, settings: Settings, document: Mapping[str, Any]) -> Settings:
        return merging.merged(settings, merging.changes_in(document, settings), self._default_store)

    def differences(self, before: Settings, after: Settings) -> tuple[KeyPath, ...]:
        return tuple(merging.differences(before, after))

    def write_temporary(
        self, settings: Settings, document: Mapping[str, Any], is_written: Callable[[KeyPath], bool]
    ) -> "Replacement | None":
        file = self._writable()
        raw = _read(file)
        found = self._loaded(file)
        changes = merging.changes_in(document, found.settings, is_written, in_force=settings)
        wanted = merging.merged(found.settings, changes, self._default_store)
        paths = merging.differences(found.settings, wanted)
        if not paths:
            return None
        _require_servers_as_before(found.settings, wanted)
        self._as_read.require_unchanged(paths, found.settings)
        for path in paths:
            self._require_effect(path, found)
        text = raw.removeprefix(_BOM).decode("utf-8")
        try:
            text = _edited(text, paths, wanted, file)
        except YamlNotEditableError as error:
            raise ConflictError(f"{file} cannot be changed by riglm: {error} — fix: change it by hand") from None
        written = (_BOM if raw.startswith(_BOM) else b"") + text.encode("utf-8")
        replacement = Replacement(file, raw, written, lambda: self._as_read.take_down(paths, wanted))
        try:
            self._check(replacement, wanted, file)
        except BaseException:
            replacement.discard()
            raise
        return replacement

    @property
    def _default_store(self) -> str:
        return default_store(self._environment)

    def _writable(self) -> Path:
        if self._file is None:
            raise ConflictError(
                "riglm was started without a configuration file, so there is none to write to — fix: start it with "
                "--config FILE, or leave persist out"
            )
        if not self._file.is_file():
            raise ConflictError(f"{self._file} is no file any more — fix: put it back, or leave persist out")
        return self._file

    def _loaded(self, file: Path) -> Configuration:
        options = replace(self._options, config=file)
        try:
            return load(options, environment=self._environment, directory=self._directory)
        except ConfigurationError as error:
            faults = [FieldError(path="", detail=f"as it is now, {line}") for line in str(error).splitlines()]
            raise InvalidInputError(*faults) from None

    def _require_effect(self, path: KeyPath, found: Configuration) -> None:
        """Raise Conflict when something else than the file decides about a path."""
        inside = [origin for place, origin in found.origins.items() if place[: len(path)] == path]
        setters = [setter_of(path, found.origins), *inside]
        for setter in setters:
            if setter not in {None, "default", str(self._file)}:
                raise ConflictError(
                    f"{dotted(path)}: {setter} sets it, so what the file says would not count — fix: change {setter}, "
                    "or leave persist out"
                )

    def _check(self, replacement: "Replacement", wanted: Settings, file: Path) -> None:
        """Raise Conflict unless the temporary file has the wanted settings."""
        try:
            options = replace(self._options, config=replacement.path)
            read = load(options, environment=self._environment, directory=self._directory).settings
            is_right = not merging.differences(read, wanted)
        except ConfigurationError:
            is_right = False
        if not is_right:
            raise ConflictError(
                f"{file} is written in a way in which riglm cannot change it faithfully — fix: change it by hand"
            )


class Replacement(StagedFile):
    """A new version of a file, in the same directory, on disk, with the mode and owner of the file."""

    def __init__(self, file: Path, before: bytes, content: bytes, when_taken: Callable[[], None]) -> None:
        """`before` is what the file held when the new content was made of it; blocks.

        Raises:
            Conflict: the file is protected, or the directory takes no file, or not with this owner.
        """
        self._target = file.resolve()  # of a symbolic link, what it points to is replaced
        self._before = before
        self._when_taken = when_taken
        try:
            _require_unprotected(self._target)
            self.path = _written(self._target, content)
        except OSError as error:
            raise _unwritable(self._target, error) from None

    def take_over(self) -> None:
        try:
            if self._target.read_bytes() != self._before:
                raise ConflictError(f"{self._target} was changed by another process — fix: ask again")
            self.path.replace(self._target)
            self._when_taken()
            _sync_directory(self._target.parent)
        except OSError as error:
            raise _unwritable(self._target, error) from None

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def _require_servers_as_before(before: Settings, wanted: Settings) -> None:
    """Raise Invalid where riglm could not start again; servers may be named elsewhere than in the file."""
    if before.upstream_specs() and not wanted.upstream_specs():
        detail = "there would be no server to proxy — fix: leave one in use"
        raise InvalidInputError(FieldError(path="mcpServers", detail=detail))


def _edited(text: str, paths: list[KeyPath], wanted: Settings, file: Path) -> str:
    editor = _editor(file)
    values = [(path, merging.value_at(wanted, path)) for path in paths]
    for path, value in sorted(values, key=_is_taken_out):
        if value is None:
            text = editor.without(text, path)
            continue
        if "${" in editor.source_of(text, path):
            raise ConflictError(
                f"{dotted(path)}: the file takes it from a variable — fix: change the variable, or leave persist out"
            )
        if _has_reference(value):
            fault = "${ would be taken for a variable when the file is read — fix: leave it, or leave persist out"
            raise InvalidInputError(FieldError(path=dotted(path), detail=fault))
        text = editor.with_value(text, path, value)
    return text


def _is_taken_out(change: tuple[KeyPath, Any]) -> bool:
    """Whether a change comes last: a section that gets something new first is not empty, and stays with its comment."""
    return change[1] is None


def _editor(file: Path) -> ModuleType:
    if file.suffix == ".json":
        from riglm.adapters.configuration import json_text

        return json_text
    from riglm.adapters.configuration import yaml_text

    return yaml_text


def _has_reference(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_reference, value.values()))
    if isinstance(value, list):
        return any(map(_has_reference, value))
    return isinstance(value, str) and "${" in value


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise _unwritable(file, error) from None


def _require_unprotected(target: Path) -> None:
    """Raise Conflict for a file without write permission: a new one in its place would get round that."""
    is_writable = target.stat().st_mode & _ANYBODY_WRITES and os.access(target, os.W_OK)  # root may write everything
    if not is_writable:
        raise ConflictError(
            f"{target} has no write permission — fix: `chmod u+w {shlex.quote(str(target))}` "
            "if it may change, or leave persist out"
        )


def _written(target: Path, content: bytes) -> Path:
    there = target.stat()
    descriptor, aside = open_temporary(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if sys.platform != "win32":
                if (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), there.st_uid, there.st_gid)
                os.fchmod(file.fileno(), there.st_mode & 0o7777)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return aside


def _sync_directory(directory: Path) -> None:
    """Bring the new name to disk, where that can be done; the file itself is there already."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unwritable(file: Path, error: OSError) -> ConflictError:
    return ConflictError(failed_write(file, error, "let riglm write there, or leave persist out"))
