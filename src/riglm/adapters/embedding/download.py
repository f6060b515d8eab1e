"""Downloads a model: `python -m riglm.adapters.embedding.download MODEL DIRECTORY`.

Progress goes to stderr. stdout gets one JSON object and nothing that a library prints.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from riglm.adapters.embedding.onnx_model import load


def main() -> int:
    """Download and try the model; the exit code."""
    answers = os.dup(1)
    os.dup2(2, 1)
    outcome, code = _download(sys.argv[1], Path(sys.argv[2]))
    with os.fdopen(answers, "w", encoding="utf-8") as stdout:
        json.dump(outcome, stdout)
    return code


def _download(name: str, directory: Path) -> tuple[dict[str, Any], int]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        model = load(name, directory, download=True)
        model.embed("The model can be used.")
    except Exception as error:  # noqa: BLE001  # the caller shows the reason
        return {"reason": str(error) or type(error).__name__}, 1
    return {"model": model.name, "identity": model.identity, "dimensions": model.dimensions}, 0


if __name__ == "__main__":
    sys.exit(main())
