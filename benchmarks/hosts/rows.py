"""The hosts that can be run: their packages, how each is set up for a model and a server, and how it is asked once."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from benchmarks.clients.installed import PACKAGE, VERSION, installed, program
from benchmarks.clients.scripted_model import Call

PROMPT: Final = "What is there to do?"
SERVER: Final = "big"
"""The name of the server in each host's file; behind riglm it is riglm."""

_SEARCH: Final[Sequence[Call]] = (
    ("search_available_tools", {"query": "echo a text"}),
    ("call_tool", {"name": "bench_echo", "arguments": {"text": "#stats"}}),
)
_NATIVE_SEARCH: Final[Sequence[Call]] = (
    ("ToolSearch", {"query": "select:mcp__riglm__bench_echo", "max_results": 1}),
    ("mcp__riglm__bench_echo", {"text": "#stats"}),
)
_CODEX_CODE: Final = "text(await tools.mcp__riglm__call_tool({name: 'bench_echo', arguments: {text: '#stats'}}))"
_CODE: Final = "return await tools.riglm.call_tool({name: 'bench_echo', arguments: {text: '#stats'}})"


class Loading(StrEnum):
    """Which definitions of a server's tools a host sends to its model, unless a hint or a setting exempts a tool."""

    ALL = "every tool"
    SEARCHED = "what it searched for"
    PROGRAMS = "none: the model writes programs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Where a host is set up: its home, the model's address, and the server as a command with its arguments."""

    home: Path
    url: str
    command: Sequence[str]

    def write(self, file: str, value: Any) -> None:
        """Write a file below the home, as JSON if it is no text."""
        path = self.home / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value, indent=2))

    def entry(self, **more: Any) -> dict[str, Any]:
        """The server as most hosts have it in their files."""
        return {"mcpServers": {SERVER: {"command": self.command[0], "args": list(self.command[1:]), **more}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host in one mode.

    `client` is its name for `riglm init`, None for one that is started with riglm's command. `server_file` holds only
    servers, and is written once. `model_file` names the model, and is written before each run. `words` is the command
    line after the program. `calls` find and call a hidden tool. `loading` was measured with the 60 tools.
    """

    title: str
    package: str
    version: str
    program: Callable[[Path], Sequence[str | Path]]
    words: Callable[[Setup], Sequence[str]]
    environment: Callable[[Setup], Mapping[str, str]]
    server_file: Callable[[Setup], None]
    model_file: Callable[[Setup], None] = lambda _: None
    client: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    calls: Sequence[Call] = _SEARCH
    loading: Loading = Loading.ALL


def _bin(name: str) -> Callable[[Path], Sequence[str | Path]]:
    return lambda package: [_modules(package) / ".bin" / name]


def _modules(package: Path) -> Path:
    return next(parent for parent in package.parents if parent.name == "node_modules")


def _claude(**variables: str) -> Host:
    mode = ", ".join(f"{name}={value}" for name, value in variables.items())
    is_searching = variables in ({}, {"ENABLE_TOOL_SEARCH": "true"})
    return Host(
        title=f"Claude Code, {mode or 'default'}",
        package=PACKAGE,
        version=VERSION,
        program=lambda package: [program(package)],
        words=lambda _: ["-p", PROMPT, "--allowedTools", f"mcp__{SERVER},mcp__riglm"],
        environment=lambda setup: {
            "ANTHROPIC_BASE_URL": setup.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "MCP_TIMEOUT": "30000",
            "MCP_CONNECTION_NONBLOCKING": "false",  # the first request waits for the server, however slow the machine
            "MCP_CONNECT_TIMEOUT_MS": "30000",
        },
        server_file=lambda setup: setup.write(".claude.json", setup.entry(type="stdio")),
        client="claude-code",
        variables=variables,
        calls=_NATIVE_SEARCH if is_searching else _SEARCH,
        loading=Loading.SEARCHED if is_searching else Loading.ALL,
    )


def _codex(model: str, **more: Any) -> Host:
    def config(setup: Setup) -> None:
        words = json.dumps(list(setup.command[1:]))
        setup.write(
            ".codex/config.toml", f"[mcp_servers.{SERVER}]\ncommand = {json.dumps(setup.command[0])}\nargs = {words}\n"
        )

    return Host(
        title=f"Codex, {model}",
        package="@openai/codex",
        version="0.171.0",
        program=_bin("codex"),
        words=lambda setup: [
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "-c",
            f'model="{model}"',
            "-c",
            'model_provider="own"',
            "-c",
            f'model_providers.own={{name="own",base_url="{setup.url}/v1",wire_api="responses"}}',
            PROMPT,
        ],
        environment=lambda _: {"OPENAI_API_KEY": "none"},
        server_file=config,
        client="codex",
        **more,
    )


def _opencode(title: str, **more: Any) -> Host:
    def model(setup: Setup) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{setup.url}/v1", "apiKey": "none"},
            "models": {"m": {"name": "m", "tool_call": True}},
        }
        setup.write("work/opencode.json", {"model": "own/m", "small_model": "own/m", "provider": {"own": provider}})

    def servers(setup: Setup) -> None:
        entry = {"type": "local", "command": list(setup.command), "enabled": True}
        setup.write(".config/opencode/opencode.json", {"mcp": {SERVER: entry}, "autoupdate": False})

    return Host(
        title=title,
        package="opencode-ai",
        version="1.18.33",
        program=_bin("opencode"),
        words=lambda _: ["run", PROMPT],
        environment=lambda _: {},
        server_file=servers,
        model_file=model,
        client="opencode",
        **more,
    )


def _gemini() -> Host:
    quiet = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    return Host(
        title="Gemini CLI",
        package="@google/gemini-cli",
        version="0.61.0",
        program=_bin("gemini"),
        words=lambda _: ["-m", "gemini-2.5-pro", "--yolo", "-p", PROMPT],
        environment=lambda setup: {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": setup.url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        server_file=lambda setup: setup.write(".gemini/settings.json", {**quiet, **setup.entry()}),
        client="gemini",
    )


def _copilot(model: str) -> Host:
    is_claude = model.startswith("claude")
    return Host(
        title=f"Copilot CLI, {model}",
        package="@github/copilot",
        version="1.0.102",
        program=_bin("copilot"),
        words=lambda _: ["--allow-all-tools", "-p", PROMPT],
        environment=lambda setup: {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": setup.url + ("" if is_claude else "/v1"),
            "COPILOT_PROVIDER_API_KEY": "none",
            "COPILOT_PROVIDER_TYPE": "anthropic" if is_claude else "openai",
            "COPILOT_MODEL": model,
        },
        server_file=lambda setup: setup.write(
            ".copilot/mcp-config.json", setup.entry(type="local", env={}, tools=["*"])
        ),
        client="copilot",
        loading=Loading.SEARCHED if is_claude else Loading.ALL,
    )


def _qwen() -> Host:
    quiet = {"security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": False}}
    return Host(
        title="Qwen Code",
        package="@qwen-code/qwen-code",
        version="0.24.4",
        program=_bin("qwen"),
        words=lambda _: ["--yolo", "-p", PROMPT],
        environment=lambda setup: {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{setup.url}/v1",
            "OPENAI_MODEL": "qwen3-coder-plus",
        },
        server_file=lambda setup: setup.write(".qwen/settings.json", {**quiet, **setup.entry()}),
        client="qwen",
        loading=Loading.SEARCHED,
    )


def _cline() -> Host:
    def model(setup: Setup) -> None:
        words = ["auth", "-p", "openai", "-k", "none", "-m", "gpt-4.1", "-b", f"{setup.url}/v1"]
        cline = _modules(installed("cline", "3.0.65")) / ".bin" / "cline"
        environment = {"HOME": str(setup.home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        subprocess.run([cline, *words], env=environment, cwd=setup.home, check=True, capture_output=True, timeout=60)

    return Host(
        title="Cline",
        package="cline",
        version="3.0.65",
        program=_bin("cline"),
        words=lambda _: [PROMPT],
        environment=lambda _: {},
        server_file=lambda setup: setup.write(".cline/data/settings/cline_mcp_settings.json", setup.entry()),
        model_file=model,
        client="cline",
    )


def _continue() -> Host:
    def config(setup: Setup) -> None:
        model = {
            "name": "m",
            "provider": "openai",
            "model": "gpt-4.1",
            "apiBase": f"{setup.url}/v1",
            "apiKey": "none",
            "roles": ["chat"],
            "capabilities": ["tool_use"],
        }
        server = {"name": SERVER, "command": setup.command[0], "args": list(setup.command[1:])}
        setup.write(
            "cn.yaml", {"name": "c", "version": "1.0.0", "schema": "v1", "models": [model], "mcpServers": [server]}
        )

    return Host(
        title="Continue",
        package="@continuedev/cli",
        version="1.5.47",
        program=_bin("cn"),
        words=lambda setup: ["--config", str(setup.home / "cn.yaml"), "--auto", "-p", PROMPT],
        environment=lambda _: {"CONTINUE_TELEMETRY_ENABLED": "0"},
        server_file=config,
    )


HOSTS: Final = (
    _claude(),
    _claude(ENABLE_TOOL_SEARCH="true"),
    _claude(ENABLE_TOOL_SEARCH="false"),
    _claude(ENABLE_TOOL_SEARCH="auto"),
    _claude(ENABLE_TOOL_SEARCH="auto:1"),
    _claude(CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS="1"),
    _codex("gpt-5.4"),
    _codex("gpt-5.5", loading=Loading.SEARCHED),
    _codex("gpt-5.6-sol", calls=(("exec", {"input": _CODEX_CODE}),), loading=Loading.PROGRAMS),
    _opencode("opencode"),
    _opencode(
        "opencode, code mode",
        variables={"OPENCODE_EXPERIMENTAL_CODE_MODE": "true"},
        calls=(("execute", {"code": _CODE}),),
        loading=Loading.PROGRAMS,
    ),
    _gemini(),
    _copilot("gpt-4.1"),
    _copilot("gpt-5.5"),
    _copilot("claude-opus-4.5"),
    _qwen(),
    _cline(),
    _continue(),
)
"""Each row of the report. VS Code, Cursor, Goose, Zed, Crush and Kiro were not run: npm and PyPI have no program."""
