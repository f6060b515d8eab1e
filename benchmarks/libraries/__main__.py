"""Do the lines for Strands Agents and Google ADK in docs/how-to/library.md work?

    python -m benchmarks.libraries

Each library is installed once, next to riglm, at the versions of its `.txt` file. Its agent runs the two blocks of the
documentation with a scripted model. In the first, riglm selects functions and records the call. In the second, riglm is
the agent's MCP server with 60 tools, of which sessions before used six: the model finds and calls a hidden tool. The
agent cannot import riglm there. Exit code 1 if a block does less.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.cache import CHECKOUT, InstallationFailed, import_path, installation, make_environment
from benchmarks.clients.claude_code import TOOLS, USED
from benchmarks.hosts.measuring import learn
from benchmarks.load import catalog
from benchmarks.process import StartFailed
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.tool_lists.list_writer import CALL_TOOL, SEARCH
from riglm.application.tool_lists.list_writer import NAMES as META_TOOLS

_HERE: Final = Path(__file__).parent
_LIBRARIES: Final = {"strands": ("strands_agents", "strands-agents"), "google.adk": ("google_adk", "google-adk[mcp]")}
_FUNCTION: Final = "read_build_log"
_NAMES: Final = tuple(str(tool["name"]) for tool in catalog.make(TOOLS))
_LEARNED: Final = frozenset(_NAMES[number] for number in USED)
_HIDDEN: Final = _NAMES[7]
_MAX_SELECTED: Final = 8
_SECONDS: Final = 120


def blocks(package: str) -> list[str]:
    """Return the blocks of the documentation that import a package."""
    page = (CHECKOUT / "docs" / "how-to" / "library.md").read_text("utf-8")
    found = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return [block for block in found if f"from {package}" in block]


def environment(module: str, requirement: str) -> Path:
    """Return the interpreter of a library's environment.

    Raises:
        InstallationFailed: pip failed.
    """
    pins = _HERE / f"{module}.txt"
    digest = hashlib.sha256(pins.read_bytes() + (CHECKOUT / "pyproject.toml").read_bytes()).hexdigest()[:12]

    def install(directory: Path) -> None:
        make_environment(directory / "venv", "--constraint", str(pins), "--editable", str(CHECKOUT), requirement)

    return installation(f"libraries-{module}", digest, install) / "venv" / "bin" / "python"


def answer(
    python: Path, module: str, block: str, home: Path, calls: Sequence[tuple[str, dict[str, Any]]], *, alone: bool
) -> dict[str, Any]:
    """Return what the model got in each of its requests: the names of the tools, and in the last one the messages.

    Raises:
        subprocess.SubprocessError: the block failed, or did not end in time.
    """
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    ended = subprocess.run(
        [python, "-m", f"benchmarks.libraries.{module}"],
        input=json.dumps({"block": block, "calls": calls, "without_riglm": alone}),
        env={"HOME": str(home), "PATH": path, "PYTHONPATH": import_path(), "OTEL_SDK_DISABLED": "true"},
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def selects(python: Path, module: str, block: str, home: Path) -> str:
    """Run the block that selects functions; return what is wrong, or nothing."""
    got = answer(python, module, block, home, [(_FUNCTION, {"about": "it"})], alone=False)
    with SqlAnalytics(f"sqlite:///{home / 'agent.db'}") as store:
        recorded = [call.tool for each in store.list_sessions() for call in store.list_invocations(each.session.id)]
    first = got["tools"][0]
    is_right = len(first) == _MAX_SELECTED and f"{_FUNCTION} is done" in got["messages"]
    return "" if is_right and recorded == [_FUNCTION] else f"got {first}, recorded {recorded}"


def serves(python: Path, module: str, block: str, home: Path) -> str:
    """Run the block with riglm as the agent's server; return what is wrong, or nothing."""
    learn(home / ".local" / "share" / "riglm")
    command = {"command": sys.executable, "args": ["-m", "benchmarks.load.upstream", "stdio", str(TOOLS)]}
    server = command | {"env": {"PYTHONPATH": import_path()}}
    (home / "riglm.yaml").write_text(yaml.safe_dump({"mcpServers": {"load": server}, "filtering": {"mode": "enforce"}}))
    calls: list[tuple[str, dict[str, Any]]] = [
        (SEARCH, {"query": _HIDDEN}),
        (CALL_TOOL, {"name": _HIDDEN, "arguments": {"text": "#stats"}}),
    ]
    got = answer(python, module, block, home, calls, alone=True)
    first = set(got["tools"][0])
    is_right = first >= _LEARNED and len(first.intersection(_NAMES)) <= _MAX_SELECTED and _HIDDEN not in first
    is_right = is_right and first <= {*_NAMES, *META_TOOLS} and "tools/call" in got["messages"]
    return "" if is_right else f"got {sorted(first)} {got['messages']}"


def main() -> int:
    wrong = False
    try:
        for package, (module, requirement) in _LIBRARIES.items():
            python = environment(module, requirement)
            for check, block in zip((selects, serves), blocks(package), strict=True):
                with tempfile.TemporaryDirectory(prefix="riglm-libraries-") as home:
                    trouble = check(python, module, block, Path(home))
                print(f"{requirement:<18}{check.__name__:<9}{trouble or 'yes'}", flush=True)
                wrong = wrong or bool(trouble)
    except (InstallationFailed, StartFailed, subprocess.SubprocessError) as error:
        print(f"could not run: {error}", file=sys.stderr)
        return 2
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
