"""Samples of clients' files, with comments and unknown keys, and which of their servers go behind riglm and which stay.

`client_homes/CLIENT` is a home directory with the file of a client.
"""

from dataclasses import dataclass
from pathlib import Path

HOMES = Path(__file__).with_name("client_homes")


@dataclass(frozen=True)
class Shape:
    """One client's file below a home directory, and which of its servers go and stay."""

    client: str
    file: Path
    content: bytes
    goes: tuple[str, ...]
    stays: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.content.decode("utf-8")


def _load_shape(client: str, *, goes: tuple[str, ...], stays: tuple[str, ...] = ()) -> Shape:
    (file,) = (path for path in (HOMES / client).rglob("*") if path.is_file())
    return Shape(client, file.relative_to(HOMES / client), file.read_bytes(), goes, stays)


CLAUDE_CODE = _load_shape("claude-code", goes=("github", "docs"), stays=("linear",))
CLAUDE_DESKTOP = _load_shape("claude-desktop", goes=("filesystem", "My Notes"), stays=("home",))
CURSOR = _load_shape("cursor", goes=("postgres", "search"), stays=("here",))
VSCODE = _load_shape("vscode", goes=("playwright", "local"), stays=("github", "secrets"))
CODEX = _load_shape("codex", goes=("github", "figma", "two words"), stays=("off",))
GEMINI = _load_shape("gemini", goes=("everything", "remote"), stays=("cut",))
QWEN = _load_shape("qwen", goes=("everything",), stays=("cut",))
COPILOT = _load_shape("copilot", goes=("playwright", "docs"), stays=("some",))
OPENCODE = _load_shape("opencode", goes=("context7",), stays=("sentry", "jira"))
ZED = _load_shape("zed", goes=("shell", "old"), stays=("mcp-server-context7",))
WINDSURF = _load_shape("windsurf", goes=("figma", "git"), stays=("off",))
CLINE = _load_shape("cline", goes=("weather", "web"), stays=("off",))
KIRO = _load_shape("kiro", goes=("search", "remote"), stays=("short", "login"))
CRUSH = _load_shape("crush", goes=("files", "web"), stays=("github", "required", "few", "signed-in", "guarded"))

SHAPES = (
    CLAUDE_CODE, CLAUDE_DESKTOP, CURSOR, VSCODE, CODEX, GEMINI, QWEN, COPILOT, OPENCODE, ZED, WINDSURF, CLINE,
    KIRO, CRUSH,
)  # fmt: skip
