"""Run fuzz targets: `python -m tests.fuzz [TARGET ...] --seconds 60`.

It begins with the seeds in `tests/fuzz/seeds`. Inputs that reach new code are kept in `.cache/fuzz`, and an input that
breaks a target as `.cache/fuzz/TARGET-crash-...`: put it among the seeds with the fix.
"""

import argparse
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

SEEDS: Final = Path(__file__).with_name("seeds")
_CACHE: Final = Path(os.environ.get("RIGLM_CACHE", ".cache")) / "fuzz"
_MAX_BYTES: Final = 4096
_SLOW_SECONDS: Final = 10


def _fuzz(name: str, seconds: int) -> None:
    """Fuzz one target in this process, which then ends."""
    import atheris  # it instruments what is imported after it

    with atheris.instrument_imports(include=["riglm"]):
        from tests.fuzz.targets import TARGETS

    logging.disable(logging.CRITICAL)
    corpus = _CACHE / name
    corpus.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={_MAX_BYTES}",
        f"-timeout={_SLOW_SECONDS}",
        f"-artifact_prefix={_CACHE}/{name}-",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus), str(SEEDS / name)], TARGETS[name])
    atheris.Fuzz()


def main() -> None:
    names = sorted(folder.name for folder in SEEDS.iterdir())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=names, help=", ".join(names))
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        _fuzz(given.targets[0], given.seconds)
        return
    command = [sys.executable, "-m", "tests.fuzz", "--here", "--seconds", str(given.seconds)]
    _CACHE.mkdir(parents=True, exist_ok=True)
    running = {}
    for name in given.targets:
        with (_CACHE / f"{name}.log").open("w", encoding="utf-8") as log:
            running[name] = subprocess.Popen([*command, name], stderr=log, stdin=subprocess.DEVNULL)
    failed = False
    for name, process in running.items():
        process.wait()
        output = (_CACHE / f"{name}.log").read_text("utf-8", "replace")
        runs = next((line.split()[-1] for line in output.splitlines() if "number_of_executed_units" in line), "0")
        outcome = "nothing found" if process.returncode == 0 else "FAILED"
        sys.stdout.write(f"{name}: {outcome} in {int(runs):,} runs\n")
        if process.returncode:
            failed = True
            sys.stdout.write(output[-8000:])
    sys.exit(failed)


if __name__ == "__main__":
    main()
