"""The scripted server's tools, one for every behaviour that a proxy could spoil."""

import asyncio
import os
import re
import signal

from tests.interaction import text
from tests.interaction.servers import catalog
from tests.interaction.servers.conversation import META_LOG_LEVEL, Exchange, Gate, Handler, Refusal

_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def arguments(exchange: Exchange) -> dict[str, bytes]:
    """The call's arguments, each as it was written."""
    return text.members(exchange.params.get("arguments", b"{}"))


def _text_result(words: str, **more: object) -> bytes:
    return text.dump({"content": [{"type": "text", "text": words}], **more})


async def echo(exchange: Exchange) -> bytes:
    """The params back, byte for byte, as text and as structured content."""
    raw = exchange.params.get("arguments", b"{}")
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"_meta":{"vendor/echo":1.0},"vendor":%b}' % (
        text.dump(raw.decode("latin-1")),
        raw,
        catalog.ODD_NUMBERS,
    )


async def verbatim(exchange: Exchange) -> bytes:
    """Whatever object the argument `hex` holds, as the result."""
    return bytes.fromhex(text.value(arguments(exchange)["hex"]))


async def nonce(exchange: Exchange) -> bytes:
    """The caller's nonce."""
    return _text_result(text.value(arguments(exchange)["nonce"]))


async def barrier(exchange: Exchange) -> bytes:
    """The caller's nonce once `size` calls of its `group` wait here; the last to come is answered first."""
    given = {name: text.value(raw) for name, raw in arguments(exchange).items()}
    barriers = exchange.conversation.barriers
    gate = barriers.setdefault(given["group"], Gate(given["size"]))
    place = gate.enter()
    await gate.full.wait()
    for _ in range(given["size"] - place):
        await asyncio.sleep(0)
    return _text_result(given["nonce"])


async def counter(exchange: Exchange) -> bytes:
    """How often this connection called the counter."""
    exchange.peer.count += 1
    return _text_result(str(exchange.peer.count), structuredContent={"count": exchange.peer.count, "pid": os.getpid()})


async def slow(exchange: Exchange) -> bytes:
    """Reports progress `steps` times; `hold` then waits to be cancelled, `late` answers nevertheless."""
    given = {name: text.value(raw) for name, raw in arguments(exchange).items()}
    meta = text.members(exchange.params.get("_meta", b"{}"))
    steps = given.get("steps", 0)
    for step in range(1, steps + 1):
        if token := meta.get("progressToken"):
            progress = b'{"progressToken":%b,"progress":%d.0,"total":%d,"message":"step \\u0061","x":1.50}' % (
                token,
                step,
                steps,
            )
            exchange.notify("notifications/progress", progress)
        await asyncio.sleep(0)
    if given.get("hold"):
        exchange.conversation.record.event("holding", marker=given.get("marker"))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if given.get("late"):
                exchange.channel.send(_reply(exchange, _text_result("too late")))
            raise
    return _text_result("done")


async def log(exchange: Exchange) -> bytes:
    """Logs one message at `level` if the client asked for that level, with the argument `data`."""
    level = text.value(arguments(exchange)["level"])
    asked = exchange.meta.get(META_LOG_LEVEL) if exchange.modern else exchange.peer.log_level or "debug"
    if asked is not None and _LEVELS.index(level) >= _LEVELS.index(asked):
        entry = b'{"level":%b,"logger":"scripted","data":%b,"x":1.0}' % (
            text.dump(level),
            arguments(exchange).get("data", b"null"),
        )
        exchange.notify("notifications/message", entry)
    return _text_result("logged")


async def notify(exchange: Exchange) -> bytes:
    """Sends a notification of its own, method and params as given."""
    given = arguments(exchange)
    exchange.notify(text.value(given["method"]), given["params"])
    return _text_result("sent")


async def ask(exchange: Exchange) -> bytes:
    """Asks the client `method` with `params`, `rounds` times, and returns the exact bytes of every answer."""
    given = arguments(exchange)
    rounds = text.value(given.get("rounds", b"1"))
    if exchange.modern:
        return _ask_by_result(exchange, given, rounds)
    answers = []
    for _ in range(rounds):
        answer = await exchange.ask(text.value(given["method"]), given.get("params"))
        answers.append(answer.get("result", answer.get("error", b"null")).decode("latin-1"))
    return text.dump({"content": [{"type": "text", "text": words} for words in answers]})


def _ask_by_result(exchange: Exchange, given: dict[str, bytes], rounds: int) -> bytes:
    responses = exchange.params.get("inputResponses")
    before = text.value(exchange.params.get("requestState", b'"[]"'))
    answers: list[str] = text.value(before.encode())
    if responses is not None:
        answers += [answer.decode("latin-1") for answer in text.members(responses).values()]
    if len(answers) >= rounds:
        return text.dump({"content": [{"type": "text", "text": words} for words in answers]})
    question = b'{"method":%b,"params":%b}' % (given["method"], given.get("params", b"{}"))
    return b'{"resultType":"input_required","inputRequests":{"question \\u0061":%b},"requestState":%b,"x":1.0}' % (
        question,
        text.dump(text.dump(answers).decode()),
    )


async def big(exchange: Exchange) -> bytes:
    """A text of `size` bytes."""
    size = text.value(arguments(exchange)["size"])
    unit = b"0123456789abcdef\xe2\x82\xac\\n--"
    body = (unit * (size // len(unit) + 1))[: size // len(unit) * len(unit)]
    return b'{"content":[{"type":"text","text":"%b"}]}' % body


async def change(exchange: Exchange) -> bytes:
    """Says `times` times that `what` changed: tools (a tool is added or taken away), prompts, resources, or a URI."""
    given = {name: text.value(raw) for name, raw in arguments(exchange).items()}
    conversation, what = exchange.conversation, given["what"]
    for _ in range(given.get("times", 1)):
        if what == "tools":
            if "extra" in conversation.tools:
                conversation.tools.remove("extra")
            else:
                conversation.tools.append("extra")
        if what in ("tools", "prompts", "resources"):
            conversation.announce(f"notifications/{what}/list_changed", {}, f"{what}ListChanged")
        else:
            conversation.announce("notifications/resources/updated", {"uri": what}, "resourceSubscriptions")
    return _text_result("extra" if "extra" in conversation.tools else "plain")


async def fail(exchange: Exchange) -> bytes:
    """Answers with the JSON-RPC error that the arguments describe."""
    given = arguments(exchange)
    raise Refusal(text.value(given["code"]), text.value(given["message"]), given.get("data"))


async def is_error(exchange: Exchange) -> bytes:
    """A result that says the tool failed."""
    return b'{"content":[{"type":"text","text":"it failed"}],"isError":true,"structuredContent":{"why":1.0}}'


async def die(exchange: Exchange) -> bytes:
    """Ends the process before it answers: by `code`, by `signal`, or in the middle of its answer."""
    given = {name: text.value(raw) for name, raw in arguments(exchange).items()}
    exchange.conversation.record.event("dying")
    if "signal" in given:
        os.kill(os.getpid(), getattr(signal, given["signal"]))
    if given.get("partial"):
        os.write(1, b'{"jsonrpc":"2.0","id":' + exchange.id + b',"result":{"content":[{"type"')
    os._exit(given.get("code", 1))


async def hang(exchange: Exchange) -> bytes:
    """Never answers."""
    exchange.conversation.record.event("holding", marker=text.value(arguments(exchange).get("marker", b"null")))
    await asyncio.Event().wait()
    return b"{}"


async def whoami(exchange: Exchange) -> bytes:
    """What the server knows of itself and of the request: process, asked-for environment, headers."""
    given = {name: text.value(raw) for name, raw in arguments(exchange).items()}
    about = {
        "pid": os.getpid(),
        "cwd": os.getcwd(),  # noqa: PTH109  # the string is the point
        "env": {name: os.environ.get(name) for name in given.get("env", [])},
        "headers": exchange.channel.headers,
    }
    return _text_result("me", structuredContent=about)


async def http_fault(exchange: Exchange) -> bytes:
    """Breaks the HTTP answer in the way named by `kind`."""
    exchange.channel.fault(text.value(arguments(exchange)["kind"]))
    return b"{}"


def _reply(exchange: Exchange, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + exchange.id + b',"result":' + result + b"}"


NOISE = {
    "banner": b"Server listening\nINFO ready {not json}\n",
    "blank lines": b"\n\r\n   \n",
    "not messages": b'42\n"text"\n[]\n[1,2]\nnull\n{}\n{"jsonrpc":"2.0"}\n{"jsonrpc":"2.0","id":{},"result":{}}\n',
    "garbage bytes": bytes(range(128, 256)) + b"\n\x00\x01\n",
}
"""What a pipe may carry between two messages."""


async def noise(exchange: Exchange) -> bytes:
    """Does something improper, named by `kind`, around a proper answer."""
    kind = text.value(arguments(exchange)["kind"])
    answer = _text_result(f"after {kind}")
    if exchange.modern:
        answer = text.merged(b'{"resultType":"complete"}', answer)
    send, write = exchange.channel.send, exchange.channel.write
    match kind:
        case "wrong id":
            send(text.response(987654321, b'{"content":[]}'))
            send(text.response("nobody", b'{"content":[]}'))
            send(text.failure(None, -32601, "about a notification"))
        case "duplicate reply":
            send(_reply(exchange, answer))
        case "stderr flood":
            for number in range(1000):
                os.write(2, b"%05d %b\n" % (number, b"x" * 1018))
        case "invalid utf-8":
            send(_reply(exchange, answer[:-1] + b',"broken":"a\xffb\xc3"}'))
        case "crlf":
            write(_reply(exchange, answer) + b"\r\n")
        case "split":
            for part in re.findall(rb".{1,9}", _reply(exchange, answer) + b"\n", re.DOTALL):
                write(part)
                await asyncio.sleep(0.001)
        case _:
            write(NOISE[kind])
    return answer


TOOLS: dict[str, Handler] = {
    tool.__name__: tool
    for tool in (
        echo,
        verbatim,
        nonce,
        barrier,
        counter,
        slow,
        log,
        notify,
        ask,
        big,
        change,
        fail,
        is_error,
        die,
        hang,
        whoami,
        http_fault,
        noise,
    )
}
