"""One host measured: directly, and through riglm after `riglm init` and `riglm enforce`."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cache import CHECKOUT, import_path
from benchmarks.clients.claude_code import TOOLS, UPSTREAM, USED, teach
from benchmarks.clients.scripted_model import ScriptedModel
from benchmarks.hosts.rows import Host, Loading, Setup
from benchmarks.load import catalog
from benchmarks.subject import RIGLM, Served
from riglm.application.tool_lists.list_writer import NAMES as META_TOOLS

_SECONDS: Final = 150
_MOST_LISTED: Final = 8
_CALLED: Final = re.compile(r"tools/call\W{1,8}\d")
_DATA: Final = ".local/share/riglm"
_NAMES: Final = tuple(str(tool["name"]) for tool in catalog.make(TOOLS))
_LEARNED: Final = tuple(_NAMES[number] for number in USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one host did. Numbers are tools in the first request to the model, bytes are of all definitions in it."""

    host: str
    version: str
    direct: int
    direct_bytes: int
    listed: int
    meta_tools: int
    bytes: int
    learned: int
    reached: bool
    trouble: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the learned tools and few others are loaded, and the hidden one was called."""
        is_short = len(_LEARNED) <= self.learned and self.listed <= _MOST_LISTED
        return is_short and self.reached and not self.trouble


def ask_host(host: Host, setup: Setup, package: Path) -> None:
    """Ask a host one question, in a home that has its files, and end every process that it leaves behind."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(setup.home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1,localhost",
        **host.environment(setup),
        **host.variables,
    }
    host.model_file(setup)
    try:
        subprocess.run(
            [*host.program(package), *host.words(setup)],
            env=environment,
            cwd=setup.home / "work",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would stay open as long as one of its children runs
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    finally:
        end_processes_of(setup.home)


def end_processes_of(home: Path) -> None:
    """End the processes that were started with this home: hosts give their servers process groups of their own."""
    while left := [process for process in Path("/proc").glob("[0-9]*") if _has_home(process, home)]:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)


def _has_home(process: Path, home: Path) -> bool:
    try:
        return f"HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False


def _loaded(model: ScriptedModel) -> tuple[set[str], int]:
    """The tools of the server and of riglm in the first request with tools, and the bytes of all tools in it.

    A tool that runs programs names those that programs can call.
    """
    for tools, loaded in zip(model.tools, model.loaded, strict=True):
        if tools:
            code = json.dumps(tools) if any(tool.name in {"exec", "execute"} for tool in loaded) else ""
            names = {known for known in (*_NAMES, *META_TOOLS) for tool in loaded if tool.name.endswith(known)}
            named = {known for known in (*_NAMES, *META_TOOLS) if re.search(rf"(?:\.|__){known}\(", code)}
            return names | named, len(json.dumps(tools))
    raise LookupError("it sent its model no tools")


def _riglm(home: Path, *words: str) -> None:
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    subprocess.run([*RIGLM, *words], env=environment, cwd=home / "work", check=True, capture_output=True)


def measured(host: Host, package: Path, home: Path, learned: Path) -> Row:
    """Ask a host, installed as `package`, in a new home; `learned` is the data of a riglm with use.

    Raises:
        LookupError: it sent its model no tools.
        OSError, subprocess.SubprocessError: it cannot be run.
    """
    (home / "work").mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet"], cwd=home / "work", check=True)
    script = home / "server.py"
    script.write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(CHECKOUT)!r})\nsys.argv[1:] = ['stdio', '{TOOLS}']\n"
        "runpy.run_module('benchmarks.load.upstream', run_name='__main__')\n"
    )
    upstream = (sys.executable, str(script))
    with ScriptedModel() as model:
        setup = Setup(home=home, url=model.url, command=upstream)
        host.server_file(setup)
        ask_host(host, setup, package)
        direct, direct_bytes = _loaded(model)
    shutil.copytree(learned, home / _DATA)
    with ScriptedModel(host.calls) as model:
        setup = Setup(home=home, url=model.url, command=(*RIGLM, "run", "--", *upstream))
        if host.client is None:
            host.server_file(setup)
        else:
            _riglm(home, "init", "--yes", "--client", host.client)
            _riglm(home, "enforce")
        ask_host(host, setup, package)
        names, size = _loaded(model)
        reached = _CALLED.search(json.dumps(model.requests[-1])) is not None
    loads = {Loading.ALL: {TOOLS}, Loading.SEARCHED: {0}, Loading.PROGRAMS: range(TOOLS + 1)}[host.loading]
    return Row(
        host=host.title,
        version=host.version,
        direct=len(direct),
        direct_bytes=direct_bytes,
        listed=len(names.intersection(_NAMES)),
        meta_tools=len(names.intersection(META_TOOLS)),
        bytes=size,
        learned=len(names.intersection(_LEARNED)),
        reached=reached,
        trouble="" if len(direct) in loads else f"it loaded {len(direct)} tools directly, not {host.loading}",
    )


def learn(directory: Path) -> None:
    """Have riglm record sessions that use six tools.

    Raises:
        StartFailed: riglm does not serve.
    """
    served = Served(RIGLM, UPSTREAM, directory, arguments=(), PYTHONPATH=import_path())
    try:
        asyncio.run(teach(f"http://127.0.0.1:{served.port}/mcp", _LEARNED))
    finally:
        served.process.stop()
