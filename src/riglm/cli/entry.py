"""The way in. What most clients start, `riglm run [--no-filter] -- COMMAND`, need not wait for a parser."""

import gc
import os
import sys

_NO_FILTER = "--no-filter"
_PATIENT = (50_000, 10, 10)
"""Nearly all that a start makes stays: to look through it for garbage would take a seventh of the time."""

_INTERRUPTED = 130
"""The code of what Ctrl-C ended, as shells have it."""


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use, configuration or data; 130 after Ctrl-C."""
    try:
        _main()
    except KeyboardInterrupt:  # while modules are loaded, where no command looks after it yet
        sys.exit(_INTERRUPTED)


def _main() -> None:
    gc.set_threshold(*_PATIENT)
    fill_standard_descriptors()
    words = sys.argv[1:]
    for opening in (["run", "--"], ["run", _NO_FILTER, "--"]):
        command = words[len(opening) :]
        if command and words[: len(opening)] == opening:
            _run(command, no_filter=_NO_FILTER in opening)
    from riglm.cli.main import main as parse

    parse()


def _run(command: list[str], *, no_filter: bool) -> None:
    from riglm.cli.starting import ready
    from riglm.domain.errors import RiglmError, UnusableInput

    try:
        values = [(_NO_FILTER, ("filtering", "enabled"), False)] if no_filter else []
        configuration = ready(command=command, values=values)
        from riglm.composition.running import run_stdio

        code = run_stdio(configuration)
    except RiglmError as error:
        print(f"riglm: {error}", file=sys.stderr)  # noqa: T201  # for the user who started it
        code = 2 if isinstance(error, UnusableInput) else 1
    sys.exit(code)


def fill_standard_descriptors() -> None:
    """Put the null device where a standard stream is closed: else a file or a socket would get its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(null, True)
