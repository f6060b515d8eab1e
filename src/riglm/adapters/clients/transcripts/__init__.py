"""The clients whose transcripts can be read."""

from typing import Final

from riglm.adapters.clients.transcripts.claude_code import CLAUDE_CODE
from riglm.adapters.clients.transcripts.codex import CLINE, CODEX
from riglm.adapters.clients.transcripts.copilot import COPILOT
from riglm.adapters.clients.transcripts.gemini import GEMINI, QWEN
from riglm.adapters.clients.transcripts.opencode import OPENCODE

__all__ = ["SOURCES"]

SOURCES: Final = {each.client: each for each in (CLAUDE_CODE, CODEX, GEMINI, OPENCODE, CLINE, COPILOT, QWEN)}
