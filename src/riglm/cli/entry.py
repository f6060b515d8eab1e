"""The entry point, and what `riglm run` and `serve` do before they serve: settings read, servers looked for.

`riglm run`, which clients start and wait for, does not wait for the imports of the parser.
"""

import gc
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riglm.adapters.configuration.loading import Configuration

_OPTIONS = {"--config": "config", "--mcp-json": "mcp_json", "--url": "url", "--log-level": "log_level"}
_PATIENT = (50_000, 10, 10)
"""Nearly all that a start makes stays: to look through it for garbage would take a seventh of the time."""

_SWITCH = "PYDANTIC_DISABLE_PLUGINS"

_INTERRUPTED = 130
"""The code of what Ctrl-C ended, as shells have it."""


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use, configuration or data; 130 after Ctrl-C."""
    try:
        _main()
    except (KeyboardInterrupt, SystemExit) as error:
        code = _INTERRUPTED if isinstance(error, KeyboardInterrupt) else error.code
        if code == _INTERRUPTED:  # by Ctrl-C, or by OpenBLAS if it could not start its threads
            _end_if_short(_thread_failure())
        sys.exit(code)
    except BaseException as error:
        _end_if_short(error)
        raise


def _end_if_short(error: BaseException | None) -> None:
    """Print what the machine is short of and exit, if that caused the error."""
    from riglm.domain.errors import shortage_in

    if error is not None and (words := shortage_in(error)):
        print(f"riglm: {words}", file=sys.stderr)  # noqa: T201  # for the user who started it
        sys.exit(1)


def _thread_failure() -> BaseException | None:
    """Return why no thread can be started now, None if one can."""
    try:
        threading.Thread(target=int, daemon=True).start()
    except RuntimeError as error:
        return error
    return None


def _main() -> None:
    gc.set_threshold(*_PATIENT)
    fill_standard_descriptors()
    words = sys.argv[1:]
    options = _options_of_run(words[1:]) if words[:1] == ["run"] else None
    if options is not None:
        gc.disable()  # until the server of one client has settled
        _run_stdio(options)
    from riglm.cli.main import main as parse

    parse()


def _options_of_run(words: list[str]) -> dict[str, Any] | None:
    """Return the options of a `riglm run` that is spelled plainly, None if the parser has to read it."""
    options: dict[str, Any] = {"no_filter": False, "command": []}
    rest = iter(words)
    for word in rest:
        name, is_joined, value = word.partition("=")
        if word == "--":
            options["command"] = list(rest)
            return options if options["command"] else None
        if word == "--no-filter":
            options["no_filter"] = True
        elif name in _OPTIONS:
            given = value if is_joined else next(rest, "")
            if not given or given.startswith("-"):
                return None
            options[_OPTIONS[name]] = given
        else:
            return None
    return options


def _run_stdio(options: Mapping[str, Any]) -> None:
    from pathlib import Path

    from riglm.domain.errors import RiglmError, UnusableInputError

    try:
        configuration = ready(
            config=Path(options["config"]) if "config" in options else None,
            mcp_json=Path(options["mcp_json"]) if "mcp_json" in options else None,
            url=options.get("url"),
            command=options["command"],
            values=common_values(options["no_filter"], options.get("log_level")),
        )
        from riglm.running import run_stdio

        code = run_stdio(configuration)
    except RiglmError as error:
        from riglm.cli.output import printable_lines  # not before: it would delay each start

        print(f"riglm: {printable_lines(str(error))}", file=sys.stderr)  # noqa: T201  # for the user who started it
        code = 2 if isinstance(error, UnusableInputError) else 1
    sys.exit(code)


def ready(**options: Any) -> "Configuration":
    """The configuration for these `Options`, with at least one server that is there.

    Raises:
        ConfigurationError: the configuration cannot be used, or names no server, or none whose program is there, or a
            predictor, an embedder or a database driver that is not.
    """
    with _without_plugins():
        from riglm.adapters.configuration.loading import Options, load
        from riglm.adapters.configuration.locations import store_url
        from riglm.adapters.configuration.presence import (
            require_all,
            require_embedder,
            require_predictor,
            require_upstreams,
        )

        configuration = load(Options(**options))
    require_all(
        lambda: require_upstreams(configuration, every=False),
        lambda: require_predictor(configuration),
        lambda: require_embedder(configuration),
        lambda: store_url(configuration.settings),
    )
    return configuration


def common_values(
    no_filter: bool, log_level: str | None, url: str | None = None, headers: Sequence[str] = ()
) -> list[tuple[str, tuple[str, ...], Any]]:
    """Return the settings that both commands have options for.

    Raises:
        ConfigurationError: a header is not written as `NAME: VALUE`, or there is no URL to send it to.
    """
    from riglm.domain.errors import ConfigurationError

    values: list[tuple[str, tuple[str, ...], Any]] = [
        ("--no-filter", ("filtering", "enabled"), False if no_filter else None),
        ("--log-level", ("logging", "level"), log_level),
    ]
    if headers and url is None:
        raise ConfigurationError("--header: there is no URL to send it to — fix: give --url as well")
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon:
            raise ConfigurationError("--header: a header has a name and a value — fix: write --header 'NAME: VALUE'")
        values.append(("--header", ("upstream", "headers", name.strip()), value.strip()))
    return values


@contextmanager
def _without_plugins() -> Iterator[None]:
    """Keep pydantic from looking for plugins in all that is installed, which takes a tenth of the start."""
    if _SWITCH in os.environ:
        yield
        return
    os.environ[_SWITCH] = "1"
    try:
        yield
    finally:
        del os.environ[_SWITCH]  # the servers' environment is not ours to change


def fill_standard_descriptors() -> None:
    """Put the null device where a standard stream is closed: else a file or a socket would get its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(null, True)
