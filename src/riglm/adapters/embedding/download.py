"""Download of a model from its hub by a child process.

The child is `python -m riglm.adapters.embedding.download MODEL DIRECTORY`. Its progress goes to stderr, and stdout gets
one JSON object and nothing that a library prints.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from riglm.adapters.embedding.bundled import NOTHING_REPORTED
from riglm.domain.errors import RiglmError


class PullFailedError(RiglmError):
    """A model could not be downloaded; the message names the model, the reason and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledModel:
    """A model that can be used from now on without a network; `identity` has its revision."""

    model: str
    identity: str
    dimensions: int


def pull(model: str, directory: Path, *, deadline: float) -> PulledModel:
    """Download the model into the directory; nothing is done when it is there already.

    This happens in another process, since libraries print anywhere and wait without end: what remains of it
    after `deadline` seconds is killed. It shows its progress on stderr.

    Raises:
        PullFailedError: there is no such model, or the hub did not give it out in time.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "riglm.adapters.embedding.download", model, str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=os.environ | NOTHING_REPORTED,
        start_new_session=True,
    )
    try:
        answer, _ = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        raise _failed(model, directory, f"the hub did not give it out within {deadline:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return _outcome(model, directory, answer)


def _outcome(model: str, directory: Path, answer: bytes) -> PulledModel:
    try:
        outcome = json.loads(answer)
    except ValueError:
        raise _failed(model, directory, "the download ended without an answer") from None
    if "reason" in outcome:
        raise _failed(model, directory, outcome["reason"])
    return PulledModel(**outcome)


def _failed(model: str, directory: Path, reason: str) -> PullFailedError:
    if "— fix:" in reason:
        return PullFailedError(f"{model}: {reason}")
    return PullFailedError(
        f"{model}: cannot be downloaded: {reason} — fix: check the network, name a mirror with HF_ENDPOINT, allow more "
        f"time with --deadline, or copy {directory} from a machine that has the model"
    )


def main() -> int:
    """Download and try the model; the exit code."""
    answers = os.dup(1)
    os.dup2(2, 1)
    outcome, code = _download(sys.argv[1], Path(sys.argv[2]))
    with os.fdopen(answers, "w", encoding="utf-8") as stdout:
        json.dump(outcome, stdout)
    return code


def _download(name: str, directory: Path) -> tuple[dict[str, Any], int]:
    from riglm.adapters.embedding.onnx_model import load  # numpy comes with it

    try:
        directory.mkdir(parents=True, exist_ok=True)
        model = load(name, directory, download=True)
        model.embed("The model can be used.")
    except Exception as error:  # noqa: BLE001  # the caller shows the reason
        return {"reason": str(error) or type(error).__name__}, 1
    return {"model": model.name, "identity": model.identity, "dimensions": model.dimensions}, 0


if __name__ == "__main__":
    sys.exit(main())
