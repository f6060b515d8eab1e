"""`riglm top`: a running riglm at a glance."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from riglm.cli.control import ControlApi, ControlApiRejectedError, ControlApiUnavailableError, configured
from riglm.cli.output import ConfigOption, JsonOption, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

_MINUTE: Final = 60
_HOUR: Final = 3600
_ROWS: Final = 50
"""More sessions or tools are not asked for: no terminal is so high."""


def top(
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Where the control API is; by default as the configuration says."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            envvar="RIGLM_CONTROL_TOKEN",
            show_envvar=False,
            help="The token to look with; in RIGLM_CONTROL_TOKEN others on this machine do not see it.",
        ),
    ] = None,
    hours: Annotated[
        int, typer.Option("--hours", metavar="N", min=1, max=24 * 366, help="Count the last N hours.")
    ] = 24,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.5, max=3600, help="Ask so often.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a running riglm in the terminal.

    Sessions, hit rate, tokens, servers and tools. Ctrl-C ends it.
    """
    api = _api(url, token, config)
    seen = _look(api, hours)
    if as_json:
        print_json(seen)
    elif once or not sys.stdout.isatty():
        _print_once(api.url, seen, hours)
    else:
        _watch(api, seen, hours, every)


def _api(url: str | None, token: str | None, config: Path | None) -> ControlApi:
    if url is not None and token is not None:
        return ControlApi(url, token)
    its_url, its_token = configured(config)
    return ControlApi(url or its_url, token or (its_token if url is None else None))


def _look(api: ControlApi, hours: int) -> dict[str, Any]:
    """What the control API says now: its answers by name, each as it is."""
    now = int(time.time())
    since = now - now % _MINUTE - hours * _HOUR  # the same for a minute, so that it need not be counted again
    return {
        "health": api.get("/health"),
        "summary": api.get(f"/stats/summary?since={since}"),
        "series": api.get(f"/stats/series?since={now - _MINUTE}&until={now}&buckets=1&sessions_since={since}"),
        "sessions": api.get(f"/sessions?active=true&limit={_ROWS}"),
        "tools": api.get(f"/tools?since={since}&limit={_ROWS}"),
    }


def _print_once(url: str, seen: dict[str, Any], hours: int) -> None:
    from rich.console import Console

    from riglm.cli.top_frame import frame

    console = Console(markup=False, emoji=False, highlight=False)
    console.print(frame(seen, url=url, hours=hours, width=console.width, height=None))


def _watch(api: ControlApi, seen: dict[str, Any], hours: int, every: float) -> None:
    """Show the view until the user ends it; an unreachable riglm is polled again."""
    from rich.console import Console
    from rich.live import Live

    from riglm.cli.top_frame import frame

    console = Console(markup=False, emoji=False, highlight=False)
    trouble = ""

    def drawn() -> "RenderableType":
        size = console.size
        return frame(seen, url=api.url, hours=hours, width=size.width, height=size.height, trouble=trouble)

    try:
        with Live(drawn(), console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                time.sleep(every)
                try:
                    seen, trouble = _look(api, hours), ""
                except (ControlApiUnavailableError, ControlApiRejectedError) as error:
                    trouble = str(error)
                live.update(drawn(), refresh=True)
    except KeyboardInterrupt:
        return
