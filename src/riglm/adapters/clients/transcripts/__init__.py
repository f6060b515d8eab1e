"""The clients whose transcripts can be read."""

from typing import Final

from riglm.adapters.clients.transcripts.codex import CLINE, CODEX
from riglm.adapters.clients.transcripts.readers import CLAUDE_CODE, COPILOT, GEMINI, OPENCODE, QWEN

__all__ = ["SOURCES"]

SOURCES: Final = {each.client: each for each in (CLAUDE_CODE, CODEX, GEMINI, OPENCODE, CLINE, COPILOT, QWEN)}
