"""The tools of one namespace of MetaMCP, with a record of what riglm changed there."""

import logging
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from riglm.adapters.metamcp.api import MetaMcpApi
from riglm.domain import jsonrpc
from riglm.domain.errors import RiglmError
from riglm.domain.naming import SEPARATOR
from riglm.domain.upstream import GatewayAccount
from riglm.ports.gateway import GatewayPort, ToolSwitch

_ACTIVE: Final = "ACTIVE"
_INACTIVE: Final = "INACTIVE"
_log: Final = logging.getLogger("riglm.gateway")
_UNLISTED: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Characters of a server's name that MetaMCP leaves out of the names of its tools."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A status that riglm set for an override; `was_active` is the one before, `is_done` False until it is set."""

    override_id: UUID
    is_active: bool
    was_active: bool
    is_done: bool = False


class MetaMcpNamespace(GatewayPort):
    """Tools are mapped to a namespace when MetaMCP shows it, or by riglm before their status is set.

    Of the processes that use one data directory, one makes changes.
    """

    def __init__(
        self, account: GatewayAccount, directory: Path, hold: Callable[[Path], Callable[[], None] | None]
    ) -> None:
        """`directory` gets the record. `hold` locks a file and returns the release, None if another process has it."""
        self._account = account
        self._api = MetaMcpApi(account)
        digest = sha256(f"{account.url} {account.endpoint}".encode()).hexdigest()[:16]
        self._record = directory / f"metamcp-{digest}.json"
        self._hold = hold
        self._release: Callable[[], None] | None = None
        self._namespace = ""
        self._servers: list[dict[str, Any]] = []
        self._tools: dict[str, dict[str, Any]] = {}
        self._refused: set[str] = set()

    def update(self, switches: Sequence[ToolSwitch], in_force: AbstractSet[UUID]) -> str:
        try:
            self._read()
            if self._is_leading():
                self._apply({each.tool: each for each in switches}, in_force)
        except (KeyError, TypeError, AttributeError) as error:
            raise RiglmError(f"MetaMCP sent an unknown answer: {type(error).__name__} {error}") from error
        except OSError as error:
            fix = "make its directory writable for you"
            raise RiglmError(f"{self._record} cannot be read or written: {error} — fix: {fix}") from error
        listed = [(each["name"], each["status"]) for each in self._servers]
        shown = [{key: each.get(key) for key in sorted(each) if key in _LISTED} for each in self._tools.values()]
        return sha256(jsonrpc.encode([sorted(listed), sorted(map(str, shown))])).hexdigest()

    def close(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None

    def _is_leading(self) -> bool:
        if self._release is None:
            self._record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._release = self._hold(self._record.with_suffix(".lock"))
        return self._release is not None

    def _read(self) -> None:
        """Read the servers and tools of the namespace.

        Raises:
            RiglmError: MetaMCP cannot be reached or refuses, or has no such endpoint.
        """
        endpoints = {each["name"]: each["namespace_uuid"] for each in self._api.query("endpoints.list")}
        if self._account.endpoint not in endpoints:
            raise RiglmError(f"MetaMCP shows no endpoint {self._account.endpoint!r} to {self._account.email}")
        self._namespace = endpoints[self._account.endpoint]
        self._servers = self._api.query("namespaces.get", {"uuid": self._namespace})["servers"]
        rows = self._api.query("namespaces.getTools", {"namespaceUuid": self._namespace})
        self._tools = {
            f"{_UNLISTED.sub('', each['serverName'])}{SEPARATOR}{each.get('overrideName') or each['name']}": each
            for each in rows
        }

    def _apply(self, switches: dict[str, ToolSwitch], in_force: AbstractSet[UUID]) -> None:
        changes = self._load()
        for tool, change in list(changes.items()):
            if change.override_id not in in_force and tool not in switches:
                if self._is_active(tool) is change.is_active:
                    self._set(tool, is_active=change.was_active)
                self._save(changes := {name: each for name, each in changes.items() if name != tool})
        for tool, switch in switches.items():
            earlier = changes.get(tool)
            if earlier and earlier.override_id == switch.override_id and earlier.is_done:
                continue
            if not self._register(switch):
                continue
            was_active = earlier.was_active if earlier else self._is_active(tool) is True
            change = _Change(switch.override_id, switch.is_active, was_active)
            self._save(changes := changes | {tool: change})
            self._set(tool, is_active=switch.is_active)
            self._save(changes := changes | {tool: replace(change, is_done=True)})

    def _is_active(self, tool: str) -> bool | None:
        """True if a tool is listed, None if the namespace does not know it."""
        return self._tools[tool]["status"] == _ACTIVE if tool in self._tools else None

    def _set(self, tool: str, *, is_active: bool) -> None:
        row = self._tools[tool]
        if self._is_active(tool) is is_active:
            return
        status = _ACTIVE if is_active else _INACTIVE
        place = {"namespaceUuid": self._namespace, "toolUuid": row["uuid"], "serverUuid": row["serverUuid"]}
        self._api.mutate("namespaces.updateToolStatus", place | {"status": status})
        row["status"] = status

    def _register(self, switch: ToolSwitch) -> bool:
        """Return True if the namespace knows the tool, after mapping it if that is possible.

        Mapping a tool activates it, so that one that is known is not mapped again. MetaMCP maps no tools with the
        separator in their names.
        """
        if switch.tool in self._tools:
            return True
        if switch.definition is None or switch.tool in self._refused:
            return False
        members = jsonrpc.members(switch.definition)
        tool = {
            "name": switch.tool,
            "description": jsonrpc.text(members.get("description")) or "",
            "inputSchema": jsonrpc.plain(members.get("inputSchema", b"{}")),
        }
        self._api.mutate("namespaces.refreshTools", {"namespaceUuid": self._namespace, "tools": [tool]})
        self._read()
        if switch.tool not in self._tools:
            self._refused.add(switch.tool)
            _log.warning("MetaMCP does not map this tool; its override is not applied", extra={"tool": switch.tool})
        return switch.tool in self._tools

    def _load(self) -> dict[str, _Change]:
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=dict[str, _Change])
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise RiglmError(f"{self._record} is damaged: {error} — fix: delete it") from error

    def _save(self, changes: dict[str, _Change]) -> None:
        """Write to a temporary file, then rename it, so that a crash leaves the old record or the new one."""
        handle, draft = tempfile.mkstemp(dir=self._record.parent, prefix=f".{self._record.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(changes))
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(self._record)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise


_LISTED: Final = frozenset(
    {
        "uuid",
        "name",
        "serverName",
        "status",
        "overrideName",
        "overrideTitle",
        "overrideDescription",
        "overrideAnnotations",
    }
)
"""The members of a tool's row that decide what is listed."""
