"""Starts riglm by a fork of a process that has imported it: a third of the processor time of a new interpreter.

The process that forks is started by the first call of `start` or `riglm_command`, and ends with the one that called it.
A test that gives a command to a library, a host or a shell starts riglm by the words of `riglm_command`.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from tests.started import die_with_the_starter
from tests.waiting import WAIT_SECONDS

PROGRAM = (sys.executable, "-m", "riglm")
"""How a command of riglm begins."""

_MODULES = (
    "encodings.idna",
    "encodings.utf_8_sig",
    "alembic.command",
    "alembic.config",
    "anyio._backends._asyncio",
    "blake3",
    "httpcore2",
    "numpy.ma",
    "opentelemetry.sdk.metrics",
    "pydantic.v1",
    "sqlalchemy.dialects.sqlite",
    "threadpoolctl",
    "trio",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.off",
    "uvloop",
    "riglm.adapters.analytics.clickhouse",
    "riglm.adapters.analytics.knowledge",
    "riglm.adapters.analytics.postgresql",
    "riglm.adapters.analytics.sql",
    "riglm.adapters.analytics.vectors",
    "riglm.adapters.configuration.client_file",
    "riglm.adapters.control.app",
    "riglm.adapters.control.server",
    "riglm.adapters.doctor",
    "riglm.adapters.private_files",
    "riglm.adapters.mcp.oauth.sign_in",
    "riglm.adapters.mcp.oauth.signed_in_client",
    "riglm.adapters.mcp.oauth.unattended",
    "riglm.adapters.mcp.downstream.http",
    "riglm.adapters.mcp.downstream.stdio",
    "riglm.adapters.mcp.upstream.http_upstream",
    "riglm.adapters.mcp.upstream.upstreams",
    "riglm.adapters.mcp.upstream.sse_upstream",
    "riglm.adapters.metamcp",
    "riglm.adapters.prediction.hybrid",
    "riglm.adapters.spool.sqlite_spool",
    "riglm.adapters.state.redis_connection",
    "riglm.adapters.telemetry.metrics",
    "riglm.application.control.overrides",
    "riglm.application.control.statistics",
    "riglm.application.filtering.always_listed",
    "riglm.application.prediction.prediction_service",
    "riglm.application.prediction.warm_sets",
    "riglm.application.proxy.list_changes",
    "riglm.application.reports.report",
    "riglm.application.session_sharing.session_sharing_service",
    "riglm.application.session_sharing.shared_sessions",
    "riglm.application.session_sharing.stored_handshakes",
    "riglm.cli.accounts",
    "riglm.cli.config",
    "riglm.cli.database",
    "riglm.cli.demo",
    "riglm.cli.doctor",
    "riglm.cli.entry",
    "riglm.cli.init",
    "riglm.cli.knowledge",
    "riglm.cli.learning_from",
    "riglm.cli.main",
    "riglm.cli.report",
    "riglm.cli.trust",
    "riglm.cli.usage",
    "riglm.domain.schemas.changes",
    "riglm.lifespan",
    "riglm.running",
)
_EVERYDAY = (
    "read_file",
    "list_directory",
    "write_file",
    "run_command",
    "edit_file",
    "move_file",
    "search_files",
    "web_search",
    "fetch_page",
    "time",
)
_COMMAND = ("sh", "-p", "7", "--no-cache", "--key=x1y2z3", "a=b c", "/a.py", "AbCd1234", "http://u@localhost/a1b2?c=d")
"""Words in which riglm looks for secrets with all its patterns."""

_DEFAULTS = {"LANG": "C.UTF-8"}
"""Variables with the value that a process has in effect without them."""

_WITHOUT_EFFECT = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONUNBUFFERED"}
FOLLOW_SECONDS = 0.5
"""Seconds after which a forked riglm reads again what others changed in the store: many tests wait for that.

On a stage there are processes for long that would only read more often.
"""

METAMCP_CACHE_SECONDS = 0.4
"""Seconds for which a forked riglm does not believe what MetaMCP lists after a change: its stand-in caches for less."""

LIST_WAIT_SECONDS = 60.0
"""Seconds for which a list of a forked riglm waits for what was learned, so that a busy machine does not change it."""

MARK = "RIGLM_TEST_STAGE"
"""Every process that a test's stage starts carries this variable, so that none is lost from sight."""

_ROOT = Path(__file__).parents[1]
_MAIN = str(_ROOT / "src" / "riglm" / "__main__.py")
_environment = dict(os.environ)  # tests may change it before the process that forks is started
_PR_SET_NAME = 15
_LONGEST = 1 << 17


def process_name(env: Mapping[str, str]) -> str:
    """The name of a forked process in this environment: `/proc` shows the environment of the process that forked it."""
    return env.get(MARK, "riglm")[:15]


def can_start(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """True for riglm in an environment that does not concern the interpreter itself."""
    return tuple(command[: len(PROGRAM)]) == PROGRAM and all(
        env.get(name, _DEFAULTS.get(name)) == _environment.get(name, _DEFAULTS.get(name))
        for name in {*env, *_environment}
        if name.startswith(("PYTHON", "LD_", "LC_", "LANG", "TZ")) and name not in _WITHOUT_EFFECT
    )


class Forked:
    """A riglm that was started by a fork; `stdout` is its output."""

    def __init__(self, connection: socket.socket, stdout: BinaryIO) -> None:
        self._connection = connection
        self.stdout = stdout
        self.pid = int(connection.recv(32))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it ended: negative for the number of a signal."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(32))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("riglm", timeout or 0.0) from None
            self._connection.close()
        return self.returncode


def start(
    command: Sequence[str], env: Mapping[str, str], *, stdin: int, stderr: int, cwd: Path | None = None
) -> Forked:
    """Start a command that `can_start` in a process group of its own."""
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    asked = {"arguments": command[len(PROGRAM) :], "env": dict(env), "cwd": str(cwd or Path.cwd())}
    with theirs:
        descriptors = [theirs.fileno(), stdin, writing, stderr]
        socket.send_fds(_forking(os.getpid()), [json.dumps(asked).encode()], descriptors)
    os.close(writing)
    return Forked(ours, os.fdopen(reading, "rb", buffering=0))


def riglm_command(*arguments: str) -> list[str]:
    """The words that start riglm with these arguments, wherever they are run: the relay has it forked."""
    _forking(os.getpid())
    return [sys.executable, "-IS", str(Path(__file__).with_name("relay.py")), _socket_name(os.getpid()), *arguments]


def script_command(script: str, *arguments: str) -> list[str]:
    """The words that run a script in a fork of the process that has imported riglm."""
    return riglm_command("-c", script, *arguments)


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Have every riglm forked that this process starts by `python -m riglm`, while the block runs."""
    start_process = subprocess.Popen.__init__

    def start_or_fork(self: "subprocess.Popen[Any]", args: Any, *more: Any, **options: Any) -> None:
        if not isinstance(args, str) and can_start(args, options.get("env") or os.environ):
            args = riglm_command(*map(str, args[len(PROGRAM) :]))
        start_process(self, args, *more, **options)

    subprocess.Popen.__init__ = start_or_fork  # type: ignore[method-assign]
    try:
        yield
    finally:
        subprocess.Popen.__init__ = start_process  # type: ignore[method-assign]


def _socket_name(pid: int) -> str:
    return f"riglm-tests-{pid}"


@functools.cache
def _forking(pid: int) -> socket.socket:
    """The connection to the process that forks, one for each process that asks; that process ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as relays:
        relays.bind("\0" + _socket_name(pid))
        relays.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.preloaded", str(theirs.fileno()), str(relays.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno(), relays.fileno()],
            cwd=_ROOT,
            env=_environment,
        )

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait(WAIT_SECONDS)

    return ours


def _fork_forever(orders: socket.socket, relays: socket.socket) -> list[str]:
    """Fork a process for each order until there are no more; returns the arguments of riglm in each of those."""
    waiting = selectors.PollSelector()
    waiting.register(orders, selectors.EVENT_READ)
    waiting.register(relays, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.data is not None:
                pid, connection = key.data
                if key.fd == connection:  # whoever waits for the process has ended
                    os.kill(pid, signal.SIGKILL)
                    waiting.unregister(connection)
                    continue
                with contextlib.suppress(KeyError):
                    waiting.unregister(connection)
                waiting.unregister(key.fd)
                _report_end(key.fd, pid, connection)
                continue
            if key.fileobj is relays:
                connection = relays.accept()[0].detach()
                with socket.socket(fileno=os.dup(connection)) as relay:
                    order, streams, _, _ = socket.recv_fds(relay, _LONGEST, 3)
            else:
                order, descriptors, _, _ = socket.recv_fds(orders, _LONGEST, 4)
                if not order:
                    sys.exit(0)
                connection, *streams = descriptors
            if not order:  # the relay was killed before it asked
                os.close(connection)
                continue
            pid = os.fork()
            if pid == 0:
                orders.detach()  # the descriptors are closed with all others, and must not be closed again
                relays.detach()
                return _become(json.loads(order), streams)
            for each in streams:
                os.close(each)
            with contextlib.suppress(OSError):
                os.write(connection, b"%d" % pid)
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
            if key.fileobj is relays:
                waiting.register(connection, selectors.EVENT_READ, (pid, connection))


def _report_end(pidfd: int, pid: int, connection: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        os.write(connection, b"%d" % code)
    os.close(connection)
    os.close(pidfd)


def _become(asked: dict[str, Any], streams: Sequence[int]) -> list[str]:
    os.setsid()
    die_with_the_starter()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, process_name(asked["env"]).encode())
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
    os.closerange(3, 1024)
    os.chdir(asked["cwd"])
    faulthandler.enable()  # a signal that ends it leaves its stack on stderr
    os.environ.clear()
    os.environ.update(asked["env"])
    if MARK not in asked["env"]:
        sys.modules["riglm.application.store_follower"].FOLLOW_SECONDS = FOLLOW_SECONDS  # type: ignore[attr-defined]
    sys.path[1:1] = filter(None, asked["env"].get("PYTHONPATH", "").split(os.pathsep))
    return list(asked["arguments"])


def _prepare() -> None:
    """Make once what every riglm would make again: validators of settings, patterns, what a new store needs."""
    from riglm.adapters.analytics.sql import SqlAnalytics
    from riglm.application.control import overrides
    from riglm.application.prediction import warm_sets
    from riglm.cli.entry import ready
    from riglm.domain.client_support import support_of
    from riglm.domain.everyday import everyday_weights
    from riglm.domain.redaction import Redactor, mask_command

    overrides._CACHE_SECONDS = METAMCP_CACHE_SECONDS  # type: ignore[misc]
    warm_sets._WAIT_SECONDS = LIST_WAIT_SECONDS  # type: ignore[misc]
    ready(url="http://localhost/mcp", command=(), values=())
    everyday_weights([(name, f"{name.replace('_', ' ')} with a file") for name in _EVERYDAY])
    everyday_weights(
        [("it", f"{each} of a new file in a directory") for each in ("lists", "creates", "moves", "searches")]
    )
    support_of("a client")
    Redactor()(" ".join(mask_command(_COMMAND)))
    with tempfile.TemporaryDirectory() as folder, SqlAnalytics(f"sqlite:///{folder}/riglm.db"):
        pass


def _end(code: int) -> NoReturn:
    """End as the interpreter would, but do not take down what was imported: that would copy most of the memory."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    for module in _MODULES:
        importlib.import_module(module)
    from riglm.cli.entry import main

    _prepare()
    gc.freeze()
    sys.argv[:] = [_MAIN, *_fork_forever(*(socket.socket(fileno=int(each)) for each in sys.argv[1:]))]
    try:
        if sys.argv[1:2] == ["-c"]:
            script = sys.argv.pop(2)
            del sys.argv[0]
            exec(script, {"__name__": "__main__"})
            _end(0)
        main()
    except SystemExit as ended:
        _end(ended.code if isinstance(ended.code, int) else 0)
