"""The setup journal: what riglm changed in clients' files, with copies of what they were."""

import heapq
import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from riglm.application.setup.json_members import FileNotEditableError
from riglm.domain.client_setup import ClientSetup, ConfigLocation
from riglm.domain.errors import RiglmError

_NAME: Final = "installed.json"

Read = Callable[[Path], bytes | None]
"""Returns the content of a file, None if there is none."""

Write = Callable[[Path, bytes | None, bytes | None], None]
"""Replaces the first content of a file by the second; None creates or deletes it."""


class SetupJournal:
    """Directories with the journal and the copies; the first takes what is new.

    riglm's data are not always in one directory.
    """

    def __init__(self, directories: Sequence[Path], read: Read, write: Write) -> None:
        """There is at least one directory; it need not exist."""
        self.directories = tuple(directories)
        self._read = read
        self._write = write

    def all(self) -> tuple[ClientSetup, ...]:
        """Return every change that was not undone, the newest last; those of a journal that can be read."""
        found = []
        for directory in self.directories:
            try:
                found.append(self._load(directory))
            except RiglmError:
                continue
        return tuple(heapq.merge(*found, key=lambda each: each.at))

    def latest(self) -> dict[ConfigLocation, ClientSetup]:
        """Return the latest change by place."""
        return {each.place: each for each in self.all()}

    def keep(self, place: ConfigLocation, content: bytes) -> str:
        """Keep a copy of a client's file; return its name."""
        name = f"{place.key}-{secrets.token_hex(4)}{place.file.suffix}"
        self._put(name, None, content)
        return name

    def kept(self, name: str) -> bytes | None:
        """Return a copy; None if it was removed."""
        return self._read(self.where(name))

    def where(self, name: str) -> Path:
        """Return the path of a copy."""
        files = [directory / Path(name).name for directory in self.directories]
        return next((file for file in files if file.is_file()), files[0])

    def add(self, setup: ClientSetup) -> None:
        """Note a change that is about to be made.

        Raises:
            RiglmError: the journal cannot be read or written.
        """
        directory = self.directories[0]
        self._save(directory, (*self._load(directory), setup))

    def forget(self, name: str) -> None:
        """Remove a copy."""
        file = self.where(name)
        self._write(file, self._read(file), None)

    def drop(self, setups: Sequence[ClientSetup]) -> None:
        """Forget changes that were undone, and their copies."""
        for directory in self.directories:
            there = self._load(directory)
            if left := [each for each in there if each not in setups]:
                self._save(directory, left)
            elif there:
                file = directory / _NAME
                self._write(file, self._read(file), None)
        for each in setups:
            self.forget(each.before)

    def _load(self, directory: Path) -> tuple[ClientSetup, ...]:
        file = directory / _NAME
        try:
            content = self._read(file)
            return () if content is None else tuple(map(_from_json, json.loads(content)["installations"]))
        except (msgspec.ValidationError, ValueError, KeyError, TypeError) as error:
            raise FileNotEditableError(
                f"{file}: the record of what riglm changed cannot be read ({type(error).__name__}) — fix: the copies "
                "of the clients' files are next to it; put them back by hand and remove the record"
            ) from None

    def _save(self, directory: Path, setups: Sequence[ClientSetup]) -> None:
        content = (json.dumps({"installations": list(map(_to_json, setups))}, indent=2) + "\n").encode()
        before = self._read(directory / _NAME)
        if before != content:
            self._put(_NAME, before, content)

    def _put(self, name: str, before: bytes | None, content: bytes) -> None:
        try:
            self._write(self.directories[0] / name, before, content)
        except RiglmError as error:
            what, dash, fix = str(error).partition(" — fix: ")
            other = ", or name another directory by RIGLM_DATA_DIR" if "free space" not in fix else ""
            raise FileNotEditableError(f"{what}{dash}{fix}{other}") from None


def _to_json(setup: ClientSetup) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(setup, enc_hook=str)
    return {**values.pop("place"), **values}


def _from_json(values: dict[str, Any]) -> ClientSetup:
    values = {**values, "place": {name: values[name] for name in ("client", "file", "path", "project", "name")}}
    return msgspec.convert(values, ClientSetup, dec_hook=lambda _, value: Path(value))
