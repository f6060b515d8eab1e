"""Finds the one of several servers that a request belongs to."""

from collections.abc import Callable
from typing import Final, NamedTuple

from riglm.application.proxy.merging import Directory
from riglm.domain import jsonrpc, rawjson, request_params
from riglm.domain.jsonrpc import Message, Raw

BY_NAME: Final = {"tools/call": "tools/list", "prompts/get": "prompts/list"}
BY_URI: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
BY_TASK: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel", "tasks/update"})
_RESOURCES: Final = ("resources/list", "resources/templates/list")
_NEEDED_LISTS: Final = {
    **{method: (list_method,) for method, list_method in BY_NAME.items()},
    **dict.fromkeys(BY_URI, _RESOURCES),
    "completion/complete": ("prompts/list", *_RESOURCES),
}

MAX_TASKS: Final = 10_000
"""Maximum number of tasks whose server is known. The oldest are removed first."""


class Route(NamedTuple):
    """The server that a request goes to, the request as sent there, and the server's name for its subject."""

    server: str
    message: Message
    own_name: str | None = None


class Router:
    """Routes by name, by URI and by task."""

    def __init__(self, directory: Directory) -> None:
        """Routes by what `directory` knows."""
        self._directory = directory
        self._tasks: dict[bytes, str] = {}

    def find(self, message: Message) -> Route | None:
        """Return the route of a request by the lists that are known; None if they do not have it."""
        method = message.method or ""
        if method in BY_NAME:
            return self._by_name(message, BY_NAME[method], ("name",), request_params.read(message).name)
        if method in BY_URI:
            return self._by_uri(message, jsonrpc.text(request_params.read(message).uri))
        if method in BY_TASK:
            server = self._tasks.get(bytes(jsonrpc.members(message.params).get("taskId", b"")))
            return Route(server, message) if server is not None else None
        if method == "completion/complete":
            reference = jsonrpc.members(jsonrpc.members(message.params).get("ref", b"{}"))
            if jsonrpc.text(reference.get("name")) is not None:
                return self._by_name(message, "prompts/list", ("ref", "name"), reference["name"])
            return self._by_uri(message, jsonrpc.text(reference.get("uri")))
        return None

    @staticmethod
    def lists_for(method: str) -> tuple[str, ...]:
        """Return the lists that are needed to route a request."""
        return _NEEDED_LISTS.get(method, ())

    def unknown(self, message: Message, permits: Callable[[str], bool] = lambda _: True) -> str | None:
        """Return the error for a request that must be known by now; None if it may be offered to all servers.

        It names no tool that is not permitted, by the name that clients use.
        """
        method = message.method or ""
        if method in BY_NAME:
            is_call = method == "tools/call"
            name = jsonrpc.text(request_params.read(message).name)
            reason = f"Unknown {'tool' if is_call else 'prompt'}: {name}"
            public = self._directory.public_names(BY_NAME[method], name) if name is not None else []
            usable = [each for each in public if not is_call or permits(each)]
            return f"{reason}; use {' or '.join(usable)}" if usable else reason
        return "Invalid params: no server has this task" if method in BY_TASK else None

    def note_task(self, server: str, reply: Message) -> None:
        """Remember the server of a task that a reply is about."""
        if not reply.result or b'"taskId"' not in reply.line:
            return
        fields = jsonrpc.members(reply.result)
        for holder in (fields, jsonrpc.members(fields.get("task", b"{}"))):
            if "taskId" in holder:
                task = bytes(holder["taskId"])
                self._tasks.pop(task, None)
                if len(self._tasks) >= MAX_TASKS:
                    del self._tasks[next(iter(self._tasks))]
                self._tasks[task] = server

    def _by_name(self, message: Message, method: str, path: tuple[str, ...], raw: Raw) -> Route | None:
        name = jsonrpc.text(raw)
        found = self._directory.owner(method, name) if name is not None else None
        if found is None:
            return None
        server, own_name = found
        if own_name == name:
            return Route(server, message, own_name)
        if rawjson.repaired(bytes(raw)) != bytes(raw):  # the server would get another name than this
            return None
        return Route(server, request_params.with_name(message, path, raw, own_name), own_name)

    def _by_uri(self, message: Message, uri: str | None) -> Route | None:
        server = self._directory.owner_of_uri(uri) if uri is not None else None
        return Route(server, message) if server is not None else None
