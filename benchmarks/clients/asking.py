"""Claude Code asked once, in a home of its own, with a model on loopback and no way to any other host."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.clients.scripted_model import ScriptedModel
from benchmarks.process import StartFailed

_SECONDS: Final = 120


def ask(
    program: Path, home: Path, servers: Mapping[str, Any], model: ScriptedModel, prompt: str, **variables: str
) -> None:
    """Ask one question, with these servers as a client's file has them; `variables` are added to its environment.

    `home` is made if it is not there; it keeps what Claude Code leaves, the transcript of the conversation for one.

    Raises:
        StartFailed: it did not end well, or in time.
    """
    home.mkdir(parents=True, exist_ok=True)
    config = home / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "MCP_TIMEOUT": "30000",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
        **variables,
    }
    allowed = ",".join("mcp__" + re.sub(r"[^A-Za-z0-9_-]", "_", name) for name in servers)
    options = ["--mcp-config", str(config), "--strict-mcp-config", "--allowedTools", allowed]
    try:
        subprocess.run(
            [program, "-p", prompt, *options],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            cwd=home,
            timeout=_SECONDS,
        )
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", b"") or b""
        raise StartFailed(f"Claude Code: {error} {said[-1000:].decode(errors='replace')}") from error
