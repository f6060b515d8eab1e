"""The server of the study: lists the tools of a JSON file, and finds nothing in any call.

    python -m benchmarks.model_study.upstream FILE

A call of a wrong tool must not look like success, or the model would end instead of trying another one.
"""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.load.upstream import Server, serve_stdio

NOTHING_FOUND: Final = "Nothing was found for this."


class _FindsNothing(Server):
    def _called(self, name: str, arguments: Any) -> tuple[str, float]:
        return NOTHING_FOUND, 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        serve_stdio(_FindsNothing(json.loads(Path(sys.argv[1]).read_text("utf-8"))))
