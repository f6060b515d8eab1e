"""Serve local weights to the study, on loopback, with a chat template and prompt caches for four arms at a time.

    python -m benchmarks.model_study.serve FILE [--port N]

FILE are the weights of Qwen2.5-Coder-1.5B-Instruct (Q4_K_M, Apache-2.0), of which the published results are; they are
checked. It needs `pip install xllamacpp`.
"""

import argparse
import hashlib
import signal
import sys
from pathlib import Path
from typing import Final

SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
"""Of the weights that the published results were measured with."""

_SLOTS: Final = 4
_CONTEXT_TOKENS: Final = 20_480
_THREADS: Final = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--port", type=int, default=8099)
    given = parser.parse_args()
    try:
        with given.file.open("rb") as weights:
            found = hashlib.file_digest(weights, "sha256").hexdigest()
    except OSError as error:
        print(f"{given.file}: {error.strerror} — fix: name the file of the weights", file=sys.stderr)
        return 2
    if found != SHA256:
        print(f"{given.file}: sha256 is {found} — fix: use the weights with {SHA256}", file=sys.stderr)
        return 2
    try:
        import xllamacpp
    except ImportError:
        print("xllamacpp is not installed — fix: pip install xllamacpp", file=sys.stderr)
        return 2
    settings = xllamacpp.CommonParams()
    settings.model.path = str(given.file)
    settings.hostnames, settings.port = ["127.0.0.1"], given.port
    settings.n_parallel, settings.n_ctx = _SLOTS, _SLOTS * _CONTEXT_TOKENS
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = _THREADS
    settings.use_jinja = True
    server = xllamacpp.Server(settings)
    print(f"{server.listening_address}/v1", flush=True)
    signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
