"""What riglm changed in clients' files, kept with copies of what they were."""

import contextlib
import heapq
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients.json_members import FileNotEditableError
from riglm.domain.client_setup import ClientSetup, ConfigLocation
from riglm.domain.shortage import failed_write
from riglm.ports.clients import InstallationsPort

_NAME: Final = "installed.json"


class SetupJournal(InstallationsPort):
    """A directory with the record and the copies, all for the user's eyes only: the copies may hold secrets."""

    def __init__(self, directory: Path) -> None:
        """The directory need not exist."""
        self._directory = directory
        self._made: list[Path] = []
        """The folders that were made for it by this process."""

    def all(self) -> tuple[ClientSetup, ...]:
        try:
            return self._read()
        except FileNotEditableError:
            return ()

    def keep(self, place: ConfigLocation, content: bytes) -> str:
        name = f"{place.key}-{secrets.token_hex(4)}{place.file.suffix}"
        self._write(name, content)
        return name

    def kept(self, name: str) -> bytes | None:
        try:
            return self.where(name).read_bytes()
        except OSError:
            return None

    def where(self, name: str) -> Path:
        return self._directory / Path(name).name

    def add(self, installation: ClientSetup) -> None:
        self._note((*self._read(), installation))

    def drop(self, installations: Sequence[ClientSetup]) -> None:
        left = [each for each in self._read() if each not in installations]
        if left:
            self._note(left)
        else:
            (self._directory / _NAME).unlink(missing_ok=True)
        for each in installations:
            self.forget(each.before)

    def forget(self, name: str) -> None:
        self.where(name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # they hold something else
            for folder in dict.fromkeys([self._directory, self._directory.parent, *self._made]):
                folder.rmdir()

    def _read(self) -> tuple[ClientSetup, ...]:
        file = self._directory / _NAME
        try:
            return tuple(map(_installation, json.loads(file.read_bytes())["installations"]))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileNotEditableError(
                f"{file}: the record of what riglm changed cannot be read ({type(error).__name__}) — fix: the copies "
                "of the clients' files are next to it; put them back by hand and remove the record"
            ) from None

    def _note(self, installations: Sequence[ClientSetup]) -> None:
        self._write(
            _NAME, (json.dumps({"installations": list(map(_written, installations))}, indent=2) + "\n").encode()
        )

    def _write(self, name: str, content: bytes) -> None:
        stem, dot, suffix = name.rpartition(".")
        aside = self._directory / f".{stem}.riglm-{secrets.token_hex(4)}{dot}{suffix}"
        absent = [each for each in (self._directory, *self._directory.parents) if not each.exists()]
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(self._directory / name)
            self._made += absent
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                for folder in absent:
                    folder.rmdir()
            fix = "let riglm write there, or name another directory by RIGLM_DATA_DIR"
            raise FileNotEditableError(failed_write(self._directory, error, fix)) from None


class MergedSetupJournals(InstallationsPort):
    """Several records as one, where riglm's data are not always in one directory; the first takes what is new."""

    def __init__(self, records: Sequence[SetupJournal]) -> None:
        """There is at least one."""
        self._records = tuple(records)

    def all(self) -> tuple[ClientSetup, ...]:
        return tuple(heapq.merge(*(record.all() for record in self._records), key=lambda each: each.at))

    def keep(self, place: ConfigLocation, content: bytes) -> str:
        return self._records[0].keep(place, content)

    def kept(self, name: str) -> bytes | None:
        return next((found for record in self._records if (found := record.kept(name)) is not None), None)

    def where(self, name: str) -> Path:
        holding = (record for record in self._records if record.kept(name) is not None)
        return next(holding, self._records[0]).where(name)

    def add(self, installation: ClientSetup) -> None:
        self._records[0].add(installation)

    def forget(self, name: str) -> None:
        self._records[0].forget(name)

    def drop(self, installations: Sequence[ClientSetup]) -> None:
        for record in self._records:
            there = record.all()
            if found := [each for each in installations if each in there]:
                record.drop(found)


def _written(installation: ClientSetup) -> dict[str, Any]:
    place = installation.place
    return {
        "client": place.client,
        "file": str(place.file),
        "path": list(place.path),
        "project": None if place.project is None else str(place.project),
        "name": place.name,
        "configuration": str(installation.configuration),
        "entry": installation.entry,
        "command": list(installation.command),
        "servers": dict(installation.servers),
        "before": installation.before,
        "after": installation.after,
        "configured": installation.configured,
        "at": installation.at,
    }


def _installation(said: dict[str, Any]) -> ClientSetup:
    place = ConfigLocation(
        client=said["client"],
        file=Path(said["file"]),
        path=tuple(said["path"]),
        project=None if said["project"] is None else Path(said["project"]),
        name=said["name"],
    )
    return ClientSetup(
        place=place,
        configuration=Path(said["configuration"]),
        entry=said["entry"],
        command=tuple(said["command"]),
        servers=dict(said["servers"]),
        before=said["before"],
        after=said["after"],
        configured=said["configured"],
        at=said["at"],
    )
