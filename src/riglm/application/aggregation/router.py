"""Finds the one of several servers that a request belongs to."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from riglm.application.aggregation.merged_lists import MergedList, MergedListCache, OwnershipTable
from riglm.application.forwarding.proxied_request import ActiveCall
from riglm.application.forwarding.riglm_requests import Asking
from riglm.application.forwarding.services import RequestServices, tool_name
from riglm.domain import jsonrpc, protocol, rawjson, request_params
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import Session
from riglm.domain.tool import ToolCatalog
from riglm.ports.upstream import UpstreamLink

_BY_NAME: Final = {"tools/call": "tools/list", "prompts/get": "prompts/list"}
_BY_URI: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
_BY_TASK: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel", "tasks/update"})
_RESOURCES: Final = ("resources/list", "resources/templates/list")
_RESOURCE_NOT_FOUND: Final = -32002

MAX_TASKS: Final = 10_000
"""Tasks beyond this many are forgotten, the oldest first."""


PermissionCheck = Callable[[str, tuple[str, str]], bool]
"""Whether a client may use a tool: by the name that it uses, and by its server with the server's own name."""


class Route(NamedTuple):
    """The server that a request goes to, the request as sent there, and the server's name for its subject."""

    server: str
    message: Message
    own: str | None = None


class Router:
    """Routes by name, by URI and by task; all other requests are offered to one server after the other."""

    def __init__(self, directory: OwnershipTable, asking: Asking) -> None:
        """A router by what `directory` knows."""
        self._directory = directory
        self._asking = asking
        self._tasks: dict[bytes, str] = {}

    def find(self, message: Message) -> Route | None:
        """Return the route of a request by the lists that are known."""
        method = message.method or ""
        if method in _BY_NAME:
            return self._by_name(message, _BY_NAME[method], ("name",), request_params.read(message).name)
        if method in _BY_URI:
            return self._by_uri(message, jsonrpc.text(request_params.read(message).uri))
        if method in _BY_TASK:
            server = self._tasks.get(bytes(jsonrpc.members(message.params).get("taskId", b"")))
            return Route(server, message) if server is not None else None
        if method == "completion/complete":
            reference = jsonrpc.members(jsonrpc.members(message.params).get("ref", b"{}"))
            if jsonrpc.text(reference.get("name")) is not None:
                return self._by_name(message, "prompts/list", ("ref", "name"), reference["name"])
            return self._by_uri(message, jsonrpc.text(reference.get("uri")))
        return None

    def lists_for(self, message: Message) -> tuple[str, ...]:
        """Return the lists that are needed to route a request."""
        method = message.method or ""
        if method in _BY_NAME:
            return (_BY_NAME[method],)
        if method == "completion/complete":
            return ("prompts/list", *_RESOURCES)
        return _RESOURCES if method in _BY_URI else ()

    def tool_names(self, tool: str) -> tuple[str, ...]:
        """Return all names under which clients may know the tool that `tool` reaches."""
        return self._directory.name_patterns(tool)

    def is_unlisted(self, route: Route) -> bool:
        """Whether the server's list of tools is known, and does not have the one that a call means."""
        return route.own is not None and self._directory.lacks("tools/list", route.server, route.own)

    def unknown(self, message: Message, permits: PermissionCheck = lambda *_: True) -> Message | None:
        """The error for a request that must be known by now; None when it may still be offered around.

        It names no tool that may not be used.
        """
        method = message.method or ""
        if method in _BY_NAME:
            is_call = method == "tools/call"
            name = jsonrpc.text(request_params.read(message).name)
            words = f"Unknown {'tool' if is_call else 'prompt'}: {name}"
            claimed = self._directory.claimed(_BY_NAME[method], name) if name is not None else {}
            would_do = [seen for seen, owner in claimed.items() if not is_call or permits(seen, owner)]
            if would_do:
                words += f"; use {' or '.join(would_do)}"
            return jsonrpc.error(message.id, jsonrpc.INVALID_PARAMS, words)
        if method in _BY_TASK:
            return jsonrpc.error(message.id, jsonrpc.INVALID_PARAMS, "Invalid params: no server has this task")
        return None

    def note(self, server: str, reply: Message) -> Message:
        """Remember whose task an answer is about."""
        if reply.result and b'"taskId"' in reply.line:
            fields = jsonrpc.members(reply.result)
            for holder in (fields, jsonrpc.members(fields.get("task", b"{}"))):
                if "taskId" in holder:
                    self._remember(bytes(holder["taskId"]), server)
        return reply

    async def offer(
        self,
        message: Message,
        links: Iterable[UpstreamLink],
        on_server_message: Callable[[UpstreamLink, Message], None],
    ) -> Message:
        """Ask one server after the other until one does not refuse the request as unknown to it.

        A server that cannot be reached is passed over.
        """
        unknown = {jsonrpc.METHOD_NOT_FOUND}
        if message.method in _BY_URI:
            unknown |= {_RESOURCE_NOT_FOUND, jsonrpc.INVALID_PARAMS}
        answer = jsonrpc.error(message.id, jsonrpc.METHOD_NOT_FOUND, f"Method not found: {message.method}")
        for link in links:

            def related(inner: Message, link: UpstreamLink = link) -> None:
                on_server_message(link, inner)

            found, failure = await self._asking.put(link, message.method or "", bytes(message.params) or b"{}", related)
            if failure is ErrorKind.UNAVAILABLE:
                continue
            answer = found
            if not answer.error or jsonrpc.error_code(answer) not in unknown:
                break
        return answer.replace(id=message.id or b"null")

    def _remember(self, task: bytes, server: str) -> None:
        self._tasks.pop(task, None)
        if len(self._tasks) >= MAX_TASKS:
            del self._tasks[next(iter(self._tasks))]
        self._tasks[task] = server

    def _by_name(self, message: Message, method: str, path: tuple[str, ...], raw: Raw | None) -> Route | None:
        name = jsonrpc.text(raw)
        found = self._directory.owner(method, name) if name is not None else None
        if found is None:
            return None
        server, own = found
        if own == name:
            return Route(server, message, own)
        if rawjson.repaired(bytes(raw or b"")) != bytes(raw or b""):  # another name than this would go up
            return None
        params = jsonrpc.with_member(message.params, path, jsonrpc.encode(own))
        return Route(server, message.replace(params=params), own)

    def _by_uri(self, message: Message, uri: str | None) -> Route | None:
        server = self._directory.owner_of_uri(uri) if uri is not None else None
        return Route(server, message) if server is not None else None


class ClientToolNames:
    """Remembers the joined list that was shown."""

    def __init__(self, services: RequestServices, merged_lists: MergedListCache) -> None:
        self._services = services
        self._merged_lists = merged_lists
        self._catalog = ToolCatalog()

    def show(self, session: Session, joined: MergedList, missing: Sequence[str]) -> dict[str, Raw]:
        """Record the list of a session, and return what its result reports of the missing servers.

        An incomplete list is logged once for each server, and is no exposure.
        """
        self._catalog = joined.catalog
        self._services.owners.note(joined.owners)
        self._merged_lists.report_missing(missing)
        if missing:
            return {"_meta": Raw(jsonrpc.encode({protocol.META_MISSING: missing}))}
        self._services.expose(session, joined.catalog)
        return {}

    def start_call(
        self, session: Session, router: Router, message: Message, route: Route | None, link: UpstreamLink | None
    ) -> tuple[ActiveCall | None, Message | None]:
        """Record a call, and return an error if it is denied or has no server, now that lists are known."""
        tool = tool_name(request_params.read(message)) or ""
        server, owner, is_unlisted = "", None, None
        known = tool in self._catalog.name_set
        if route is not None:
            server, owner = route.server, (route.server, route.own or tool)
            is_unlisted = None if known else partial(router.is_unlisted, route)
        names = router.tool_names(tool) if tool else ()
        call, refused = self._services.start_call(
            session, message, server, names, link=link, owner=owner, known=known, is_unlisted=is_unlisted
        )
        if refused is None and route is None:
            refused = router.unknown(message, lambda seen, owner: self._services.permits(session, (seen,), owner))
        return call, refused

    def input_schema(self, tool: str) -> bytes | None:
        """The raw `inputSchema` of a shown tool."""
        schema = self._catalog.input_schema(tool)
        return bytes(schema) if schema else None
