# ruff: noqa: E501  # the files of clients have long lines
"""What the files of clients look like: comments, unknown keys, and servers that go behind riglm and that stay."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shape:
    """One client's file below a home directory, and which of its servers go and stay."""

    client: str
    file: Path
    text: str
    goes: tuple[str, ...]
    stays: tuple[str, ...] = ()

    @property
    def content(self) -> bytes:
        return self.text.encode("utf-8")


CLAUDE_CODE = Shape(
    "claude-code",
    Path(".claude.json"),
    r"""{
  "numStartups": 412,
  "tipsHistory": {"new-user-warmup": 3, "caf\u00e9": 1},
  "mcpServers": {
    "github": {
      "type": "stdio",
      "command": "sh",
      "args": ["-c", "npx -y @modelcontextprotocol/server-github"],
      "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_TOKEN}"}
    },
    "linear": {"type": "http", "url": "https://mcp.linear.invalid/mcp"},
    "docs": {"type": "http", "url": "${DOCS_URL:-https://docs.example.com}/mcp", "headers": {"X-Key": "k9-literal-key"}}
  },
  "oauthAccount": {"emailAddress": "someone@example.com", "accessToken": "tok-ABCDEF0123456789"},
  "projects": {"/work/app": {"allowedTools": [], "mcpServers": {}, "hasTrustDialogAccepted": true}}
}""",
    ("github", "docs"),
    ("linear",),
)

CLAUDE_DESKTOP = Shape(
    "claude-desktop",
    Path(".config/Claude/claude_desktop_config.json"),
    '\ufeff{\r\n\t"globalShortcut": "Ctrl+Space",\r\n\t"mcpServers": {\r\n\t\t"filesystem": {\r\n\t\t\t"command": "sh",\r\n'
    '\t\t\t"args": [\r\n\t\t\t\t"-c",\r\n\t\t\t\t"exec fs"\r\n\t\t\t]\r\n\t\t},\r\n\t\t"My Notes": {\r\n\t\t\t"command": "sh",'
    '\r\n\t\t\t"args": []\r\n\t\t},\r\n\t\t"home": {\r\n\t\t\t"command": "sh",\r\n\t\t\t"args": ["${HOME}/x"]\r\n\t\t}\r\n\t}'
    ',\r\n\t"preferences": {"menuBarEnabled": true}\r\n}\r\n',
    ("filesystem", "My Notes"),
    ("home",),
)

CURSOR = Shape(
    "cursor",
    Path(".cursor/mcp.json"),
    """{
    "mcpServers": {
        "postgres": {
            "command": "sh",
            "args": ["-c", "pg", "${userHome}/db"],
            "env": { "PGPASSWORD": "${env:PGPASSWORD}" }
        },
        "here": { "command": "sh", "args": ["${workspaceFolder}/server.js"] },
        "search": { "url": "https://search.example.com/mcp", "headers": { "Authorization": "Bearer ${env:SEARCH_KEY}" } }
    }
}
""",
    ("postgres", "search"),
    ("here",),
)

VSCODE = Shape(
    "vscode",
    Path(".config/Code/User/mcp.json"),
    """{
\t// asked for once
\t"inputs": [{ "type": "promptString", "id": "gh", "password": true }],
\t"servers": {
\t\t/* the one with a token */
\t\t"github": { "type": "http", "url": "https://api.example.com/mcp", "headers": { "Authorization": "Bearer ${input:gh}" } },
\t\t"playwright": {
\t\t\t"type": "stdio",
\t\t\t"command": "sh", // "not" { a } bracket
\t\t\t"args": ["-c", "exec playwright"],
\t\t\t"gallery": true,
\t\t},
\t\t"secrets": { "type": "stdio", "command": "sh", "envFile": "${workspaceFolder}/.env" },
\t\t// the last one
\t\t"local": { "type": "sse", "url": "http://localhost:8123/sse" },
\t},
}
""",
    ("playwright", "local"),
    ("github", "secrets"),
)

CODEX = Shape(
    "codex",
    Path(".codex/config.toml"),
    '''model = "gpt-5"   # mine
notify = ["python3", "/opt/notify.py"]
text = """
[mcp_servers.not_one]
"""

# servers
[mcp_servers.github]
command = "sh"   # a comment
args = [
  "-c",          # the shell
  "exec gh",
]
startup_timeout_sec = 20

[mcp_servers.github.env]
GITHUB_TOKEN = "ghp_0123456789abcdefABCDEF"

[mcp_servers.figma]
url = "https://figma.example.com/mcp"
bearer_token_env_var = "FIGMA_TOKEN"
http_headers = { "X-Region" = "eu" }

[mcp_servers.off]
command = "sh"
enabled = false

[mcp_servers."two words"]
command = "sh"

# --- profiles ---
[profiles.fast]
model = "gpt-5-mini"
''',
    ("github", "figma", "two words"),
    ("off",),
)

GEMINI = Shape(
    "gemini",
    Path(".gemini/settings.json"),
    """{
  // how it looks
  "ui": { "theme": "GitHub" },
  "mcpServers": {
    "everything": {
      "command": "sh",
      "args": ["-c", "exec everything"],
      "env": { "KEY": "$EVERYTHING_KEY", "HOME_DIR": "${HOME}" },
      "timeout": 30000,
      "trust": true
    },
    "cut": { "command": "sh", "excludeTools": ["delete_all"] },
    "remote": { "httpUrl": "http://127.0.0.1:9000/mcp" }
  }
}
""",
    ("everything", "remote"),
    ("cut",),
)

QWEN = Shape(
    "qwen",
    Path(".qwen/settings.json"),
    """{
  "model": { "name": "qwen3-coder-plus" },
  "mcpServers": {
    "everything": {
      "command": "sh",
      "args": ["-c", "exec everything"],
      "env": { "KEY": "$EVERYTHING_KEY" },
      "alwaysLoadTools": true
    },
    "cut": { "command": "sh", "includeTools": ["read"] }
  }
}
""",
    ("everything",),
    ("cut",),
)

COPILOT = Shape(
    "copilot",
    Path(".copilot/mcp-config.json"),
    """{
  "mcpServers": {
    "playwright": { "type": "local", "command": "sh", "args": ["-c", "exec it"], "env": {}, "tools": ["*"] },
    "some": { "type": "local", "command": "sh", "args": [], "tools": ["read"] },
    "docs": { "type": "http", "url": "https://docs.example.com/mcp", "headers": { "X-Key": "$DOCS_KEY" }, "tools": ["*"] }
  }
}
""",
    ("playwright", "docs"),
    ("some",),
)

OPENCODE = Shape(
    "opencode",
    Path(".config/opencode/opencode.jsonc"),
    """{
  "$schema": "https://opencode.ai/config.json",
  "model": "anthropic/claude", // the good one
  "mcp": {
    "context7": { "type": "local", "command": ["sh", "-c", "exec c7"], "environment": { "K": "{env:C7_KEY}" }, "enabled": true },
    "sentry": { "type": "remote", "url": "https://mcp.sentry.invalid/mcp", "oauth": {} },
    "jira": { "type": "remote", "url": "https://jira.example.com/mcp", "headers": { "Authorization": "Bearer {file:~/.jira}" } },
  },
}
""",
    ("context7",),
    ("sentry", "jira"),
)

ZED = Shape(
    "zed",
    Path(".config/zed/settings.json"),
    """// Zed settings
//
// To see all of them, run `zed: open default settings`.
{
  "theme": "One Dark",
  "context_servers": {
    "mcp-server-context7": { "enabled": true, "settings": { "key": "abcd1234efgh" } },
    "shell": { "source": "custom", "command": "sh", "args": ["-c", "exec it"], "env": {} },
    "old": { "command": { "path": "sh", "args": ["-c", "exec old"], "env": { "A": "1" } }, "settings": {} },
  },
  "buffer_font_size": 15,
}
""",
    ("shell", "old"),
    ("mcp-server-context7",),
)

WINDSURF = Shape(
    "windsurf",
    Path(".codeium/windsurf/mcp_config.json"),
    '{"mcpServers":{"figma":{"serverUrl":"https://figma.example.com/mcp","headers":{"API_KEY":"Bearer ${env:FIGMA}"}},'
    '"git":{"command":"sh","args":["-c","exec git-mcp"],"disabledTools":[],"alwaysAllow":["status"]},'
    '"off":{"command":"sh","disabled":true}}}',
    ("figma", "git"),
    ("off",),
)

CLINE = Shape(
    "cline",
    Path(".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    """{
  "mcpServers": {
    "weather": {
      "autoApprove": ["forecast"],
      "disabled": false,
      "timeout": 60,
      "type": "stdio",
      "command": "sh",
      "args": ["-c", "exec weather", "--api-key", "sk-live-0123456789abcdef"]
    },
    "web": { "type": "streamableHttp", "url": "https://web.example.com/mcp", "headers": { "X-Api-Key": "${env:WEB_KEY}" } },
    "off": { "command": "sh", "disabled": true }
  }
}""",
    ("weather", "web"),
    ("off",),
)

KIRO = Shape(
    "kiro",
    Path(".kiro/settings/mcp.json"),
    """{
  "mcpServers": {
    "search": {
      "command": "sh",
      "args": ["-c", "exec search"],
      "env": { "SEARCH_KEY": "${SEARCH_KEY}" },
      "disabled": false,
      "autoApprove": ["find"],
      "disabledTools": []
    },
    "remote": { "url": "https://api.example.com/mcp", "headers": { "Authorization": "Bearer ${API_TOKEN}" } },
    "short": { "command": "sh", "disabledTools": ["write"] },
    "login": { "url": "https://login.example.com/mcp", "headers": { "X-A": "b" }, "oauth": { "clientId": "x" } }
  }
}
""",
    ("search", "remote"),
    ("short", "login"),
)

CRUSH = Shape(
    "crush",
    Path(".config/crush/crush.json"),
    """{
  "$schema": "https://charm.land/crush.json",
  "options": { "debug": false },
  "mcp": {
    "files": {
      "type": "stdio",
      "command": "sh",
      "args": ["-c", "exec files"],
      "timeout": 120,
      "disabled": false,
      "env": { "TOKEN": "$FILES_TOKEN", "LEVEL": "${LEVEL:-low}" }
    },
    "github": { "type": "http", "url": "https://api.example.com/mcp", "headers": { "Authorization": "Bearer $(op read gh)" } },
    "web": { "type": "sse", "url": "http://localhost:8123/sse" },
    "required": { "type": "stdio", "command": "sh", "env": { "KEY": "${KEY:?not set}" } },
    "few": { "type": "stdio", "command": "sh", "disabled_tools": ["write"] },
    "signed-in": { "type": "http", "url": "https://in.example.com/mcp?x=1", "oauth": true },
    "guarded": { "type": "stdio", "command": "sh" }
  },
  "hooks": { "PreToolUse": [{ "matcher": "^mcp_guarded_", "command": "exit 2" }] }
}
""",
    ("files", "web"),
    ("github", "required", "few", "signed-in", "guarded"),
)

SHAPES = (
    CLAUDE_CODE, CLAUDE_DESKTOP, CURSOR, VSCODE, CODEX, GEMINI, QWEN, COPILOT, OPENCODE, ZED, WINDSURF, CLINE,
    KIRO, CRUSH,
)  # fmt: skip
