"""The clients whose transcripts can be read."""

from typing import Final

from riglm.adapters.clients.transcripts.claude_code import CLAUDE_CODE
from riglm.adapters.clients.transcripts.cline import CLINE
from riglm.adapters.clients.transcripts.codex import CODEX
from riglm.adapters.clients.transcripts.copilot import COPILOT
from riglm.adapters.clients.transcripts.gemini import GEMINI
from riglm.adapters.clients.transcripts.opencode import OPENCODE
from riglm.adapters.clients.transcripts.qwen import QWEN

SOURCES: Final = {each.client: each for each in (CLAUDE_CODE, CODEX, GEMINI, OPENCODE, CLINE, COPILOT, QWEN)}
