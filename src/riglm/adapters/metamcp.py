"""The tools of one namespace of MetaMCP, by its tRPC interface, with a record of what riglm changed there."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import httpx2
import msgspec

from riglm.adapters.private_files import replace_private_file
from riglm.domain import jsonrpc
from riglm.domain.errors import RiglmError
from riglm.domain.naming import SEPARATOR
from riglm.domain.policy import ToolSwitch
from riglm.domain.upstream import GatewayAccount

_TIMEOUT_SECONDS: Final = 10.0
_MAX_RESPONSE_BYTES: Final = 32 * 2**20
_MAX_REASON: Final = 200
_UNAUTHORIZED: Final = 401
_REFUSALS: Final = frozenset({400, _UNAUTHORIZED, 403})
_URL: Final = "that `url` is that of an endpoint of MetaMCP, without redirects"


class MetaMcpApi:
    """Calls procedures with the session of an account, and signs in when that is missing or has expired."""

    def __init__(self, account: GatewayAccount) -> None:
        """Nothing is sent before the first call."""
        self._account = account
        self._cookie = ""

    def query(self, procedure: str, values: dict[str, Any] | None = None) -> Any:
        """Return the data of a query such as `namespaces.get`.

        Raises:
            RiglmError: MetaMCP cannot be reached, or refuses.
        """
        return self._call("GET", procedure, params={"input": json.dumps(values)} if values else None).get("data")

    def mutate(self, procedure: str, values: dict[str, Any]) -> None:
        """Make a change.

        Raises:
            RiglmError: MetaMCP cannot be reached, or refuses.
        """
        self._call("POST", procedure, json=values)

    def _call(self, method: str, procedure: str, **content: Any) -> dict[str, Any]:
        path, had_session = f"/trpc/frontend.{procedure}", bool(self._cookie)
        if not had_session:
            self._sign_in()
        status, body, _ = self._send(method, path, **content)
        if status == _UNAUTHORIZED and had_session:
            self._sign_in()
            status, body, _ = self._send(method, path, **content)
        try:
            result = json.loads(body)["result"]["data"]
            if result["success"]:
                return dict(result)
            reason = f"refused {procedure}: {str(result.get('message', ''))[:_MAX_REASON]}"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            reason = f"answered {procedure} with HTTP {status} and {len(body)} bytes that are no result"
        raise RiglmError(f"MetaMCP {reason}")

    def _sign_in(self) -> None:
        account, self._cookie = self._account, ""
        credentials = {"email": account.email, "password": account.password}
        status, _, cookies = self._send("POST", "/api/auth/sign-in/email", json=credentials)
        # MetaMCP sets the cookies for the host in its APP_URL, which need not be the one that riglm uses.
        self._cookie = "; ".join(each.partition(";")[0] for each in cookies)
        if status != 200 or not self._cookie:
            checked = "`metamcp.email` and `metamcp.password`" if status in _REFUSALS else _URL
            raise RiglmError(f"MetaMCP refused the sign-in with HTTP {status} — fix: check {checked}")

    def _send(self, method: str, path: str, **content: Any) -> tuple[int, bytes, list[str]]:
        """Return the status, the body and the cookies of the response. Redirects are not followed."""
        headers = {"Accept-Encoding": "identity"} | ({"Cookie": self._cookie} if self._cookie else {})

        async def respond() -> tuple[int, bytes, list[str]]:
            body = bytearray()
            async with (
                asyncio.timeout(_TIMEOUT_SECONDS),  # httpx2 limits only the time between two chunks
                httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as http,
                http.stream(method, self._account.url + path, headers=headers, **content) as response,
            ):
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > _MAX_RESPONSE_BYTES:
                        raise RiglmError(f"MetaMCP sent a response of more than {_MAX_RESPONSE_BYTES} bytes")
            return response.status_code, bytes(body), response.headers.get_list("set-cookie")

        try:
            return asyncio.run(respond())
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, TimeoutError) as error:
            reason = f"MetaMCP cannot be reached at {self._account.url}: {type(error).__name__}"
            raise RiglmError(f"{reason} — fix: start it, or check {_URL}") from None


_ACTIVE: Final = "ACTIVE"
_INACTIVE: Final = "INACTIVE"
_log: Final = logging.getLogger("riglm.gateway")
_LISTED: Final = (
    *("uuid", "name", "serverName", "status"),
    *("overrideName", "overrideTitle", "overrideDescription", "overrideAnnotations"),
)
"""The members of a tool's row that decide what is listed."""

_UNLISTED: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Characters of a server's name that MetaMCP leaves out of the names of its tools."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A status that riglm set for an override; `was_active` is the one before, `is_done` False until it is set.

    `namespace` and `tool` are MetaMCP's ids, which stay when a tool gets a different name.
    """

    override_id: UUID
    namespace: str
    tool: str
    is_active: bool
    was_active: bool
    is_done: bool = False


_Changes = dict[tuple[str, str], _Change]
"""Changes by namespace and tool."""


class MetaMcpNamespace:
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
        self._known = ""

    def update(self, switches: Sequence[ToolSwitch], in_force: AbstractSet[UUID]) -> bool:
        """Set the status of tools, each once per override, so that later changes in MetaMCP stay.

        Tools that were set for an override that is no longer `in_force` get their previous status again, unless they
        were changed in MetaMCP since. Return True if what is listed changed since the previous update, also by this
        one.

        Raises:
            RiglmError: MetaMCP cannot be reached, or refuses. What is missing is done by the next update.
        """
        try:
            self._read()
            before = self._known = self._known or self._fingerprint()
            if self._is_leading():
                self._apply({each.tool: each for each in switches}, in_force)
            self._known = self._fingerprint()
        except (KeyError, TypeError, AttributeError) as error:
            raise RiglmError(f"MetaMCP sent an unknown answer: {type(error).__name__} {error}") from error
        except OSError as error:
            fix = "make its directory writable for you"
            raise RiglmError(f"{self._record} cannot be read or written: {error} — fix: {fix}") from error
        return self._known != before

    def close(self) -> None:
        """Leave further updates to other processes."""
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
            shown = f"MetaMCP shows no endpoint {self._account.endpoint!r} to {self._account.email}"
            raise RiglmError(f"{shown} — fix: check `url` and `metamcp.email`")
        self._namespace = endpoints[self._account.endpoint]
        self._servers = self._api.query("namespaces.get", {"uuid": self._namespace})["servers"]
        rows = self._api.query("namespaces.getTools", {"namespaceUuid": self._namespace})
        self._tools = {_listed_name(each, each.get("overrideName") or each["name"]): each for each in rows}

    def _fingerprint(self) -> str:
        """Return a hash of what decides which tools are listed, and how."""
        listed = [(each["name"], each["status"]) for each in self._servers]
        shown = [[each.get(key) for key in _LISTED] for each in self._tools.values()]
        return sha256(jsonrpc.encode([sorted(listed), sorted(map(str, shown))])).hexdigest()

    def _apply(self, switches: dict[str, ToolSwitch], in_force: AbstractSet[UUID]) -> None:
        changes = self._load()
        switched = {self._key(tool) for tool in switches if tool in self._tools}
        for key, change in list(changes.items()):
            is_current = change.override_id in in_force and change.namespace == self._namespace
            if not is_current and key not in switched:
                self._undo(change)
                del changes[key]
                self._save(changes)
        for tool, switch in switches.items():
            if not self._register(switch):
                continue
            key, row = self._key(tool), self._tools[tool]
            earlier = changes.get(key)
            if earlier and earlier.override_id == switch.override_id and earlier.is_done:
                continue
            was_active = earlier.was_active if earlier else row["status"] == _ACTIVE
            changes[key] = _Change(switch.override_id, *key, switch.is_active, was_active)
            self._save(changes)
            self._set(self._namespace, row, is_active=switch.is_active)
            changes[key] = replace(changes[key], is_done=True)
            self._save(changes)

    def _key(self, tool: str) -> tuple[str, str]:
        return self._namespace, self._tools[tool]["uuid"]

    def _undo(self, change: _Change) -> None:
        """Set the previous status, if the namespace still exists and has the tool with the status that riglm set."""
        rows = list(self._tools.values())
        if change.namespace != self._namespace:
            exists = any(each["uuid"] == change.namespace for each in self._api.query("namespaces.list"))
            rows = self._api.query("namespaces.getTools", {"namespaceUuid": change.namespace}) if exists else []
        for row in rows:
            if row["uuid"] == change.tool and (row["status"] == _ACTIVE) is change.is_active:
                self._set(change.namespace, row, is_active=change.was_active)

    def _set(self, namespace: str, row: dict[str, Any], *, is_active: bool) -> None:
        status = _ACTIVE if is_active else _INACTIVE
        if row["status"] == status:
            return
        place = {"namespaceUuid": namespace, "toolUuid": row["uuid"], "serverUuid": row["serverUuid"]}
        self._api.mutate("namespaces.updateToolStatus", place | {"status": status})
        row["status"] = status

    def _register(self, switch: ToolSwitch) -> bool:
        """Return True if the namespace knows the tool, after mapping it if that is possible.

        Mapping a tool activates it, so that one that is known is not mapped again. MetaMCP maps no tools with the
        separator in their names.
        """
        if switch.tool in self._tools:
            return True
        is_renamed = switch.tool in (_listed_name(each, each["name"]) for each in self._tools.values())
        if switch.definition is None or switch.tool in self._refused or is_renamed:
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

    def _load(self) -> _Changes:
        try:
            changes = msgspec.json.decode(self._record.read_bytes(), type=list[_Change])
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise RiglmError(
                f"{self._record} is damaged: {error} — fix: delete it, and switch tools on in MetaMCP"
            ) from error
        return {(each.namespace, each.tool): each for each in changes}

    def _save(self, changes: _Changes) -> None:
        replace_private_file(self._record, msgspec.json.encode(list(changes.values())))


def _listed_name(row: dict[str, Any], name: str) -> str:
    """The name under which MetaMCP lists a tool."""
    return f"{_UNLISTED.sub('', row['serverName'])}{SEPARATOR}{name}"
