"""The embedding process: `python -m riglm.adapters.embedding.worker`, with a socket of riglm as its standard input.

It answers one request after the other and ends when riglm is gone.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Final

from riglm.adapters.embedding.frames import Embed, Load, Loaded, Message, Refused, Vectors, receive, send
from riglm.adapters.embedding.onnx_model import OnnxModel, load_first

_NICENESS: Final = 5


def main() -> int:
    """Serve until the other side is gone; the exit code."""
    os.nice(_NICENESS)
    worker = Worker()
    with _private_link() as link:
        try:
            while (request := receive(link)) is not None:
                send(link, worker.answer(request))
        except OSError:
            return 1
    return 0


class Worker:
    """Loads a model and embeds with it."""

    def __init__(self) -> None:
        self._model: OnnxModel | None = None

    def answer(self, request: Message) -> Message:
        """What is sent back for a request. Never raises: riglm is told the reason instead."""
        try:
            match request:
                case Load():
                    return self._load(request)
                case Embed() if self._model is not None:
                    return _embed(self._model, request)
                case _:
                    return Refused(reason="no model is loaded")
        except Exception as error:  # noqa: BLE001  # riglm decides what to do about it
            return Refused(reason=f"{type(error).__name__}: {error}")

    def _load(self, request: Load) -> Message:
        self._model, passed_over = load_first(request.models, Path(request.directory))
        if self._model is None:
            return Refused(reason="no model can be loaded", passed_over=tuple(passed_over))
        model = self._model
        return Loaded(
            model=model.name, identity=model.identity, dimensions=model.dimensions, passed_over=tuple(passed_over)
        )


def _embed(model: OnnxModel, request: Embed) -> Vectors:
    return Vectors(floats=b"".join(model.embed(text).tobytes() for text in request.texts))


def _private_link() -> socket.socket:
    """The link, moved away from where libraries read and print."""
    link = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    return link


if __name__ == "__main__":
    sys.exit(main())
