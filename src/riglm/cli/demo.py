"""`riglm demo`: riglm in front of real servers, driven by a real client, from start to end."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from riglm.cli.output import JsonOption, print_json, print_table
from riglm.domain.errors import RiglmError
from riglm.domain.shortage import shortage_in

if TYPE_CHECKING:
    from riglm.demo.drive import DemoSession, Scene
    from riglm.domain.cooccurrence import ToolCooccurrence
    from riglm.domain.invocation import ToolInvocation
    from riglm.ports.dashboard import SessionSummary

_INSTALL_S = 60.0
_PLAY_S = 50.0
_GRACE_S = 20.0  # Node servers on a busy machine take their time
_MAX_PAIRS = 8


@dataclass(frozen=True, slots=True)
class Recorded:
    """What riglm stored of the demo, sessions in the order in which they began."""

    sessions: "list[SessionSummary]"
    invocations: "list[list[ToolInvocation]]"
    cooccurrences: "list[ToolCooccurrence]"


def demo(
    bundled: bool = typer.Option(False, "--bundled", help="Use the bundled servers even where npx is present."),
    as_json: JsonOption = False,
) -> None:
    """Run riglm with real servers and show what it does."""
    with (
        tempfile.TemporaryDirectory(prefix="riglm-demo-", ignore_cleanup_errors=True) as name,
        _progress(as_json) as notify,
    ):
        directory = Path(name)
        scene = _scene(directory, bundled, notify)
        visits = _play(scene, directory, notify)
        notify("reading what was recorded")
        recorded = _recorded(directory)
    if as_json:
        print_json(_as_json(scene, visits, recorded))
    else:
        _print(scene, visits, recorded)
    _judge(visits, recorded)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows on stderr what takes time, with a clock."""
    if quiet:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda what: progress.update(task, description=what)


def _scene(directory: Path, bundled: bool, notify: Callable[[str], None]) -> "Scene":
    from riglm.demo.drive import bundled_scene, install, npm_scene

    if not bundled:
        notify("installing three reference servers from npm")
        programs = install(directory / "npm", _INSTALL_S)
        if programs is not None:
            return npm_scene(programs, directory)
    return bundled_scene()


def _play(scene: "Scene", directory: Path, notify: Callable[[str], None]) -> "list[DemoSession]":
    import yaml

    from riglm.demo.drive import drive

    configuration = directory / "riglm.yaml"
    storage = {"path": str(directory / "riglm.db")}
    servers = {name: dict(server) for name, server in scene.servers.items()}
    settings = {"mcpServers": servers, "storage": storage, "timeouts": {"grace": _GRACE_S}}
    configuration.write_text(yaml.safe_dump(settings), "utf-8")
    # The user's own riglm variables must not change what the demo shows.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
    log = directory / "riglm.log"

    async def play() -> "list[DemoSession]":
        # What a failed start of a process leaves in asyncio says nothing that the error does not say.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        with log.open("w", encoding="utf-8") as errors:
            async with asyncio.timeout(_PLAY_S):
                return await drive(
                    scene, configuration=configuration, environment=environment, errors=errors, announce=notify
                )

    try:
        return asyncio.run(play())
    except Exception as error:
        if words := shortage_in(error):
            raise RiglmError(words) from error
        last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-10:]) if log.exists() else ""
        cause = _innermost(error)
        raise RiglmError(f"the demo failed ({type(cause).__name__}: {cause}); riglm's last words:\n{last}") from error


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _recorded(directory: Path) -> Recorded:
    import time

    from riglm.adapters.analytics.sql import SqlAnalytics

    with SqlAnalytics(f"sqlite:///{directory / 'riglm.db'}") as store:
        store.refresh_cooccurrences(time.time())
        sessions = list(reversed(store.list_sessions()))
        invocations = [list(store.list_invocations(each.session.id)) for each in sessions]
        used = sorted({call.tool for calls in invocations for call in calls})
        return Recorded(sessions, invocations, list(store.get_cooccurrences(used)))


def _judge(visits: "list[DemoSession]", recorded: Recorded) -> None:
    """Fail unless every step went as meant and every call was recorded in its session, in order, with its outcome."""
    wrong = [answer for visit in visits for answer in visit.answers if not answer.as_meant]
    if wrong:
        raise RiglmError(f"{wrong[0].step.tool} did not answer as it should: {wrong[0].text}")
    sent = [[(answer.step.tool, not answer.step.fails) for answer in visit.answers] for visit in visits]
    stored = [[(call.tool, call.success) for call in calls] for calls in recorded.invocations]
    if sent != stored:
        raise RiglmError(f"what was recorded is not what was sent: {stored} instead of {sent}")


def _print(scene: "Scene", visits: "list[DemoSession]", recorded: Recorded) -> None:
    from riglm.cli.usage import call_row

    typer.echo(f"riglm proxied {scene.title}: {', '.join(scene.servers)}.")
    typer.echo(f"The client used MCP {visits[0].protocol_version} and got {len(visits[0].tools)} tools.\n")
    for number, visit in enumerate(visits, start=1):
        rows = [
            (answer.step.tool, answer.duration_ms, "failed, as meant" if answer.step.fails else "ok", answer.text)
            for answer in visit.answers
        ]
        print_table(f"Went through, visit {number}", ("tool", "ms at the client", "outcome", "answer"), rows)
    for summary, calls in zip(recorded.sessions, recorded.invocations, strict=True):
        session = summary.session
        title = f"Recorded: session {session.id} of {session.client.name or 'a client'} ({session.era.value} era)"
        print_table(title, ("#", "time", "tool", "server", "ms", "outcome", "found by"), map(call_row, calls))
    pairs = [(pair.tool_a, pair.tool_b, pair.count) for pair in recorded.cooccurrences[:_MAX_PAIRS]]
    print_table("Used together", ("tool", "and tool", "sessions"), pairs)
    count = sum(map(len, recorded.invocations))
    typer.echo(
        f"\n{count} calls went through, {count} were recorded, no result was kept. The demo left nothing behind."
    )


def _as_json(scene: "Scene", visits: "list[DemoSession]", recorded: Recorded) -> dict[str, Any]:
    from riglm.cli.usage import invocation_fields, pair_fields, session_fields

    return {
        "servers": list(scene.servers),
        "visits": [
            {
                "protocol_version": visit.protocol_version,
                "tools": list(visit.tools),
                "calls": [
                    {
                        "tool": answer.step.tool,
                        "as_meant": answer.as_meant,
                        "duration_ms": round(answer.duration_ms, 3),
                        "answer": answer.text,
                    }
                    for answer in visit.answers
                ],
            }
            for visit in visits
        ],
        "recorded": {
            "sessions": [
                {**session_fields(summary), "calls": [invocation_fields(call) for call in calls]}
                for summary, calls in zip(recorded.sessions, recorded.invocations, strict=True)
            ],
            "cooccurrences": [pair_fields(pair) for pair in recorded.cooccurrences],
        },
    }
