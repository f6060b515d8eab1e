"""A stand-in for MetaMCP, made from its published protocol: MCP in front, its servers behind, and tRPC at the side.

Like MetaMCP it speaks the handshake era alone over Streamable HTTP and HTTP+SSE, announces no changes, serves the
status of tools from a cache, and lists tools in another order at each request.
"""

import asyncio
import contextlib
import json
import random
import re
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import uuid4

from mcp import Client, StdioServerParameters, stdio_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.integration.oauth import serving

EMAIL: Final = "admin@example.com"
PASSWORD: Final = "admin-password-canary"
ENDPOINT: Final = "all"
CACHE_SECONDS: Final = 0.25


class StandIn:
    """The stand-in, with its settings as an administrator changes them.

    The endpoint serves `namespace`, `key` is its API key, `sign_ins` counts the sign-ins, `reads` how often the tools
    of a namespace were asked for, and `is_refusing` makes every procedure fail.
    """

    def __init__(self, servers: Mapping[str, list[str]], environment: Mapping[str, str]) -> None:
        """`servers` are the commands of the servers in the namespace."""
        self._port = socket.socket()  # never listens: while nothing is served, connections are refused
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        self.origin, self.key = f"http://localhost:{self._port.getsockname()[1]}", f"sk_mt_{secrets.token_hex(16)}"
        self.sign_ins, self.reads, self.is_refusing = 0, 0, False
        self._servers = {name: (str(uuid4()), command) for name, command in servers.items()}
        self._environment = dict(environment)
        self._tool_ids: dict[tuple[str, str], str] = {}
        self._namespaces: dict[str, list[dict[str, Any]]] = {}
        self.switch_namespace()
        self._cookies: set[str] = set()
        self._clients: dict[str, Client] = {}
        self._sessions: dict[str, asyncio.Queue[str]] = {}
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        """Start it, or start it again on the same port."""
        place = f"/metamcp/{ENDPOINT}"
        routes = [
            Route("/api/auth/sign-in/email", self._sign_in, methods=["POST"]),
            Route("/trpc/{name}", self._trpc, methods=["GET", "POST"]),
            Route(f"{place}/mcp", self._streamable, methods=["POST", "GET", "DELETE"]),
            Route(f"{place}/sse", self._sse),
            Route(f"{place}/message", self._message, methods=["POST"]),
        ]
        listener = self._stack.enter_context(socket.create_server(self._port.getsockname()))
        self._stack.enter_context(serving(Starlette(routes=routes, lifespan=self._lifespan), listener))

    def stop(self) -> None:
        """Stop it; what it stores remains."""
        self._stack.close()
        self._sessions.clear()

    def close(self) -> None:
        """Stop it, and give up its port."""
        self.stop()
        self._port.close()

    def url(self, transport: str) -> str:
        """The URL of the endpoint, for `mcp` or `sse`."""
        return f"{self.origin}/metamcp/{ENDPOINT}/{transport}"

    def statuses(self, namespace: str | None = None) -> dict[str, str]:
        """The status of each tool that is mapped to a namespace, by default to that of the endpoint."""
        rows = list(self._namespaces[namespace or self.namespace])
        return {f"{each['serverName']}__{each['name']}": each["status"] for each in rows}

    def set_status(self, tool: str, status: str) -> None:
        """Change a tool as the web page does."""
        self._row(tool)["status"] = status

    def switch_namespace(self) -> None:
        """Have the endpoint serve a new namespace."""
        self.namespace = str(uuid4())
        self._namespaces[self.namespace] = []
        self._cached = (0.0, frozenset[str]())

    def delete_namespace(self, namespace: str) -> None:
        """Delete one that the endpoint does not serve."""
        assert namespace != self.namespace
        del self._namespaces[namespace]

    def rename(self, tool: str, name: str) -> None:
        """Give a mapped tool a different name in the namespace."""
        self._row(tool)["overrideName"] = name

    def _row(self, tool: str) -> dict[str, Any]:
        server, _, own = tool.partition("__")
        [row] = [each for each in self._rows if (each["serverName"], each["name"]) == (server, own)]
        return row

    @property
    def _rows(self) -> list[dict[str, Any]]:
        return self._namespaces[self.namespace]

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette):
        async with contextlib.AsyncExitStack() as stack:
            for name, (_, command) in self._servers.items():
                server = StdioServerParameters(command=command[0], args=command[1:], env=self._environment)
                self._clients[name] = await stack.enter_async_context(Client(stdio_client(server), mode="legacy"))
            yield

    async def _sign_in(self, request: Request) -> Response:
        self.sign_ins += 1
        given = await request.json()
        if given != {"email": EMAIL, "password": PASSWORD}:
            words = {"code": "INVALID_EMAIL_OR_PASSWORD", "message": "Invalid email or password"}
            return JSONResponse(words, 401)
        cookie = f"better-auth.session_token={secrets.token_hex(16)}"
        self._cookies.add(cookie)
        headers = {"Set-Cookie": f"{cookie}; Max-Age=604800; Domain=localhost; Path=/; HttpOnly; SameSite=Lax"}
        return JSONResponse({"redirect": False, "user": {"email": EMAIL}}, headers=headers)

    async def _trpc(self, request: Request) -> Response:
        name = request.path_params["name"].removeprefix("frontend.")
        if self.is_refusing:
            return JSONResponse({"error": {"message": "Internal server error"}}, 500)
        if request.headers.get("cookie") not in self._cookies:
            data = {"code": "UNAUTHORIZED", "httpStatus": 401, "path": f"frontend.{name}"}
            return JSONResponse({"error": {"message": "You must be logged in", "code": -32001, "data": data}}, 401)
        procedure = {
            ("GET", "endpoints.list"): self._endpoints,
            ("GET", "namespaces.get"): self._get_namespace,
            ("GET", "namespaces.list"): lambda _: [{"uuid": each} for each in self._namespaces],
            ("GET", "namespaces.getTools"): self._get_tools,
            ("POST", "namespaces.updateToolStatus"): self._update_status,
            ("POST", "namespaces.refreshTools"): self._refresh,
        }[request.method, name]
        given = (
            await request.json() if request.method == "POST" else json.loads(request.query_params.get("input", "{}"))
        )
        if given.get("namespaceUuid", self.namespace) not in self._namespaces:
            return JSONResponse({"result": {"data": {"success": False, "message": "Namespace not found"}}})
        return JSONResponse({"result": {"data": {"success": True, "data": procedure(given), "message": "done"}}})

    def _endpoints(self, _: Any) -> list[dict[str, Any]]:
        return [{"uuid": str(uuid4()), "name": ENDPOINT, "namespace_uuid": self.namespace, "user_id": None}]

    def _get_namespace(self, _: Any) -> dict[str, Any]:
        servers = [{"name": name, "uuid": id_, "status": "ACTIVE"} for name, (id_, _) in self._servers.items()]
        return {"uuid": self.namespace, "name": "Default", "servers": servers}

    def _get_tools(self, given: Any) -> list[dict[str, Any]]:
        self.reads += 1
        return self._namespaces[given["namespaceUuid"]]

    def _update_status(self, given: Any) -> None:
        row = next(each for each in self._namespaces[given["namespaceUuid"]] if each["uuid"] == given["toolUuid"])
        assert row["serverUuid"] == given["serverUuid"]
        row["status"] = given["status"]

    def _refresh(self, given: Any) -> None:
        for tool in given["tools"]:
            server, _, name = tool["name"].rpartition("__")
            rows = (each for each in self._rows if (each["serverName"], each["name"]) == (server, name))
            row = next(rows, None)
            if row is None and server in self._servers:
                tool_id = self._tool_ids.setdefault((server, name), str(uuid4()))
                row = {"uuid": tool_id, "name": name, "serverName": server, "overrideName": None}
                row |= {"serverUuid": self._servers[server][0], "status": "ACTIVE"}
                self._rows.append(row)
            if row is not None:
                row["status"] = "ACTIVE"

    def _inactive(self) -> frozenset[str]:
        expires, names = self._cached
        if time.monotonic() > expires:
            rows = [each for each in self._rows if each["status"] != "ACTIVE"]
            names = frozenset(f"{each['serverName']}__{each['overrideName'] or each['name']}" for each in rows)
            self._cached = time.monotonic() + CACHE_SECONDS, names
        return names

    async def _streamable(self, request: Request) -> Response:
        session = request.headers.get("mcp-session-id")
        if not self._is_permitted(request):
            return _unauthorized()
        if session is not None and session not in self._sessions:
            return JSONResponse({"error": "Session not found", "message": f"Transport not found: {session}"}, 404)
        if request.method == "GET":
            return StreamingResponse(self._events(asyncio.Queue()), media_type="text/event-stream")
        if request.method == "DELETE":
            return Response(status_code=200 if self._sessions.pop(session or "", None) else 404)
        return await self._posted(await request.json(), session)

    async def _posted(self, message: dict[str, Any], session: str | None) -> Response:
        if session is None and message.get("method") != "initialize":
            return JSONResponse(_error(None, -32000, "Bad Request: Server not initialized"), 400)
        answer = await self._answer(message)
        if answer is None:
            return Response(status_code=202)
        if session is None:
            session = str(uuid4())
            self._sessions[session] = asyncio.Queue()
        body = f"event: message\ndata: {json.dumps(answer)}\n\n"
        return Response(body, media_type="text/event-stream", headers={"mcp-session-id": session})

    async def _sse(self, request: Request) -> Response:
        if not self._is_permitted(request):
            return _unauthorized()
        session = str(uuid4())
        queue = self._sessions[session] = asyncio.Queue()
        queue.put_nowait(f"event: endpoint\ndata: /metamcp/{ENDPOINT}/message?sessionId={session}\n\n")
        return StreamingResponse(self._events(queue), media_type="text/event-stream")

    async def _message(self, request: Request) -> Response:
        queue = self._sessions.get(request.query_params.get("sessionId", ""))
        if not self._is_permitted(request):
            return _unauthorized()
        if queue is None:
            return Response("Session not found", 404)
        answer = await self._answer(await request.json())
        if answer is not None:
            queue.put_nowait(f"event: message\ndata: {json.dumps(answer)}\n\n")
        return Response("Accepted", 202)

    async def _events(self, queue: asyncio.Queue[str]):
        while True:
            yield await queue.get()

    def _is_permitted(self, request: Request) -> bool:
        return self.key in {
            request.headers.get("x-api-key"),
            request.headers.get("authorization", "")[len("Bearer ") :],
        }

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if "id" not in message or "method" not in message:
            return None
        result: Any
        match message["method"]:
            case "initialize":
                capabilities: dict[str, Any] = {"prompts": {}, "resources": {}, "tools": {}}
                info = {"name": f"metamcp-unified-{self.namespace}", "version": "1.0.0"}
                result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
            case "ping":
                result = {}
            case "prompts/list" | "resources/list":
                result = {message["method"].partition("/")[0]: []}
            case "tools/list":
                result = {"tools": await self._list()}
            case "tools/call":
                result = await self._call(message["params"])
            case _:
                return _error(message["id"], -32601, "Method not found")
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    async def _list(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        for server, client in self._clients.items():
            prefix = re.sub("[^A-Za-z0-9_-]", "", server)
            tools = (await client.list_tools()).tools
            listed += [_plain(tool) | {"name": f"{prefix}__{tool.name}"} for tool in tools]
        renamed = {
            f"{each['serverName']}__{each['name']}": f"{each['serverName']}__{each['overrideName']}"
            for each in self._rows
            if each["overrideName"]
        }
        listed = [each | {"name": renamed.get(each["name"], each["name"])} for each in listed]
        random.shuffle(listed)
        return [each for each in listed if each["name"] not in self._inactive()]

    async def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        name = params["name"]
        server, _, own = name.partition("__")
        if name in self._inactive():
            words = f'Access denied to tool "{name}": Tool has been marked as inactive in this namespace'
            return {"content": [{"type": "text", "text": words}], "isError": True}
        listed = {tool.name for tool in (await self._clients[server].list_tools()).tools}
        if own not in listed:
            return {"content": [{"type": "text", "text": f"Unknown tool: {name}"}], "isError": True}
        return _plain(await self._clients[server].call_tool(own, params.get("arguments") or {}))


@contextlib.contextmanager
def running(servers: Mapping[str, list[str]], environment: Mapping[str, str]) -> Iterator[StandIn]:
    """A MetaMCP in front of these servers, by name and command, while the block runs."""
    stand_in = StandIn(servers, environment)
    stand_in.start()
    try:
        yield stand_in
    finally:
        stand_in.close()


def _plain(model: Any) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _error(message_id: Any, code: int, words: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message_id, "error": {"code": code, "message": words}}


def _unauthorized() -> Response:
    return JSONResponse({"error": "authentication_required", "error_description": "API key required"}, 401)
