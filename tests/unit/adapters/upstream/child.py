"""A server on pipes that does as it is asked: `python child.py [deaf] [modern] [frail] [mute] …`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

out = sys.stdout.buffer
heard: list[str] = []


def say(raw: bytes) -> None:
    out.write(raw)
    out.flush()


def answer(identifier: object, result: object) -> None:
    say(json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result}).encode() + b"\n")


def long_line(form: str, size: int, identifier: object) -> bytes:
    raw_id = json.dumps(identifier).encode()
    filler = b'"' + b"x" * size + b'"'
    return {
        "id first": b'{"jsonrpc":"2.0","id":%b,"result":{"text":%b,"id":0}}' % (raw_id, filler),
        "id last": b'{"result":{"id":0,"text":%b},"jsonrpc":"2.0","id":%b}' % (filler, raw_id),
        "notification": b'{"jsonrpc":"2.0","method":"notifications/message","params":{"text":%b}}' % filler,
    }[form]


def grandchild() -> int:
    """Leave a child that holds all pipes and ignores being asked to go."""
    code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(120)"
    reader, writer = os.pipe()
    left = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=writer)
    os.read(reader, 2)
    return left.pid


def die(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    complain_and_exit(params["code"])


def complain_and_exit(code: int) -> NoReturn:
    sys.stderr.write("a traceback\nmy last words\n")
    sys.stderr.flush()
    os._exit(code)


def kill(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def answer_and_die(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    answer(identifier, "x" * params["size"])
    os._exit(0)


def long(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    say(long_line(params["form"], params["size"], identifier) + b"\n")


def close_output(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    os.close(1)
    time.sleep(120)


def close_input(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    os.close(0)
    answer(identifier, "closed")
    time.sleep(120)


def spawn(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    answer(identifier, grandchild())
    if params.get("die"):
        os._exit(0)


def discover(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    if "modern" in modes:
        answer(identifier, {"supportedVersions": ["2026-07-28"]})
        return
    refusal = {"jsonrpc": "2.0", "id": identifier, "error": {"code": -32601, "message": "no"}}
    say(json.dumps(refusal).encode() + b"\n")
    if "frail" in modes:
        os._exit(0)
    if "mute" in modes:
        modes.add("muted")


def notify(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    answer(identifier, heard)


def hello(identifier: object, params: dict[str, Any], modes: set[str]) -> None:
    answer(identifier, {"pid": os.getpid(), "env": os.environ.get("SHOWN"), "cwd": str(Path.cwd())})


METHODS = {
    "die": die,
    "kill": kill,
    "answer and die": answer_and_die,
    "long": long,
    "close output": close_output,
    "close input": close_input,
    "spawn": spawn,
    "server/discover": discover,
    "tell": notify,
}


def serve(line: bytes, modes: set[str]) -> None:
    message = json.loads(line)
    method = message.get("method")
    heard.append(method)
    if "muted" in modes:
        return
    if "fragile" in modes and heard == ["server/discover", "initialize"]:
        os._exit(0)
    if message.get("id") is not None:
        METHODS.get(method, hello)(message["id"], message.get("params") or {}, modes)


def main() -> None:
    modes = set(sys.argv[1:])
    if "deaf" in modes:
        say(b'{"method":"not listening"}\n')
        time.sleep(120)
    while line := sys.stdin.buffer.readline():
        if "stillborn" in modes:
            complain_and_exit(4)
        serve(line, modes)


if __name__ == "__main__":
    main()
