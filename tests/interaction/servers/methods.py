"""What the scripted server answers to each method, in each era."""

import asyncio

from tests.interaction import text
from tests.interaction.servers import catalog
from tests.interaction.servers.conversation import (
    HANDSHAKE_VERSIONS,
    META_SUBSCRIPTION,
    MODERN_VERSION,
    Exchange,
    Handler,
    Listener,
    Refusal,
)
from tests.interaction.servers.tools import TOOLS

CACHE = b'{"ttlMs":0,"cacheScope":"public"}'
_IDENTITY = b'{"name":"%b","version":"1.0","vendorField":1.0}'


async def _initialize(exchange: Exchange) -> bytes:
    wanted = text.value(exchange.params.get("protocolVersion", b'""'))
    version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    exchange.peer.initialized = True
    return b'{"protocolVersion":"%b","capabilities":%b,"serverInfo":%b,"instructions":"Do \\u0061s told","x":1.0}' % (
        version.encode(),
        catalog.CAPABILITIES,
        _IDENTITY % exchange.conversation.options.name.encode(),
    )


async def _discover(exchange: Exchange) -> bytes:
    own = (
        b'{"supportedVersions":["%b"],"capabilities":%b,"_meta":{"io.modelcontextprotocol/serverInfo":%b},"x":1.0}'
        % (MODERN_VERSION.encode(), catalog.CAPABILITIES, _IDENTITY % exchange.conversation.options.name.encode())
    )
    return text.merged(own, CACHE)


async def _ping(exchange: Exchange) -> bytes:
    return b'{"vendorField":1.0}'


async def _echo(exchange: Exchange) -> bytes:
    return b'{"method":' + text.dump(exchange.method) + b',"params":' + exchange.raw_params + b"}"


async def _set_level(exchange: Exchange) -> bytes:
    exchange.peer.log_level = text.value(exchange.params["level"])
    return b"{}"


def _page(exchange: Exchange, member: str, entries: list[bytes]) -> bytes:
    size = exchange.conversation.options.page_size or len(entries) or 1
    cursor = text.value(exchange.params.get("cursor", b'"at/0"'))
    if not isinstance(cursor, str) or not cursor.startswith("at/"):
        raise Refusal(-32602, "Unknown cursor", text.dump({"cursor": cursor}))
    start = int(cursor[3:])
    result = b'{"%b":[%b],"vendor/list":1.50' % (member.encode(), b", ".join(entries[start : start + size]))
    if start + size < len(entries):
        result += b',"nextCursor":"at/%d"' % (start + size)
    result += b"}"
    return text.merged(result, CACHE) if exchange.modern else result


async def _list_tools(exchange: Exchange) -> bytes:
    return _page(exchange, "tools", [catalog.tool(name) for name in exchange.conversation.tools])


async def _list_prompts(exchange: Exchange) -> bytes:
    return _page(exchange, "prompts", [catalog.prompt(name) for name in ("greet", "ponder", "part")])


async def _list_resources(exchange: Exchange) -> bytes:
    name = exchange.conversation.options.name
    return _page(exchange, "resources", [catalog.resource(f"note://{name}/{note}") for note in ("one", "two", "three")])


async def _list_templates(exchange: Exchange) -> bytes:
    return _page(exchange, "resourceTemplates", [catalog.template(exchange.conversation.options.name)])


async def _get_prompt(exchange: Exchange) -> bytes:
    params = exchange.params
    if text.value(params["name"]) not in ("greet", "ponder", "part"):
        raise Refusal(-32602, "Unknown prompt")
    return b'{"messages":[{"role":"user","content":{"type":"text","text":%b}}],"x":1.0}' % text.dump(
        exchange.raw_params.decode("latin-1")
    )


async def _read_resource(exchange: Exchange) -> bytes:
    uri = text.value(exchange.params["uri"])
    if not uri.startswith(f"note://{exchange.conversation.options.name}/"):
        raise Refusal(-32602 if exchange.modern else -32002, "Resource not found", text.dump({"uri": uri}))
    result = b'{"contents":[{"uri":%b,"text":"words of %b","x":1.0}]}' % (text.dump(uri), uri.encode())
    return text.merged(result, CACHE) if exchange.modern else result


async def _subscribe(exchange: Exchange) -> bytes:
    exchange.peer.subscriptions.add(text.value(exchange.params["uri"]))
    return b"{}"


async def _unsubscribe(exchange: Exchange) -> bytes:
    exchange.peer.subscriptions.discard(text.value(exchange.params["uri"]))
    return b"{}"


async def _complete(exchange: Exchange) -> bytes:
    return b'{"completion":{"values":[%b],"total":1,"hasMore":false,"x":1.0}}' % text.dump(
        exchange.raw_params.decode("latin-1")
    )


async def _listen(exchange: Exchange) -> bytes:
    wanted = text.value(exchange.params.get("notifications", b"{}"))
    stamp = {META_SUBSCRIPTION: text.value(exchange.id)}
    listener = Listener(exchange, wanted)
    exchange.notify("notifications/subscriptions/acknowledged", {"notifications": wanted, "_meta": stamp})
    exchange.conversation.listeners.append(listener)
    try:
        await asyncio.Event().wait()
    finally:
        exchange.conversation.listeners.remove(listener)
    return text.dump({"_meta": stamp})


async def _call(exchange: Exchange) -> bytes:
    name = text.value(exchange.params["name"])
    if name not in exchange.conversation.tools:
        raise Refusal(-32602, f"Unknown tool: {name}", b'{"name":' + exchange.params["name"] + b"}")
    return await TOOLS.get(name, TOOLS["echo"])(exchange)


_SHARED: dict[str, Handler] = {
    "tools/list": _list_tools,
    "tools/call": _call,
    "prompts/list": _list_prompts,
    "prompts/get": _get_prompt,
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/read": _read_resource,
    "completion/complete": _complete,
    "vendor/*": _echo,
}
HANDSHAKE: dict[str, Handler] = {
    **_SHARED,
    "initialize": _initialize,
    "ping": _ping,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
MODERN: dict[str, Handler] = {**_SHARED, "server/discover": _discover, "subscriptions/listen": _listen}
