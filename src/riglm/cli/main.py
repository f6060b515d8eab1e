"""The command `riglm`."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from riglm.cli import (
    accounts,
    config,
    database,
    demo,
    doctor,
    embedder,
    evaluate,
    init,
    knowledge,
    learning_from,
    report,
    serving,
    trust,
    usage,
)
from riglm.cli.output import printable_lines
from riglm.domain.errors import RiglmError, UnusableInputError

GROUPS = {
    "Set up": ("init", "undo", "login", "logout", "accounts", "learn-from", "doctor", "demo"),
    "Run": ("run", "serve"),
    "Observe": ("report", "stats", "sessions", "tools", "evaluate"),
    "Configure": ("enforce", "shadow", "config", "trust", "control"),
    "Maintain": ("db", "embedder", "knowledge", "audit"),
}
"""Commands in `riglm --help`, by heading."""


class _GroupedCommands(TyperGroup):
    """Lists commands under the headings of `GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(66)) for name in names])


app = typer.Typer(
    name="riglm",
    cls=_GroupedCommands,
    help="A drop-in MCP proxy that records which tools are used.",
    epilog="`riglm demo` shows an example. `riglm run -- COMMAND` replaces COMMAND in a client's configuration.",
    rich_markup_mode=None,  # rich costs 60 ms of start
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# What follows the first word of the server's command belongs to that command.
_WITH_COMMAND = {"allow_interspersed_args": False}
app.command(context_settings=_WITH_COMMAND)(serving.run)
app.command(context_settings=_WITH_COMMAND)(serving.serve)
app.command()(init.init)
app.command()(init.undo)
app.command()(usage.sessions)
app.command()(usage.stats)
app.command()(demo.demo)
app.command()(accounts.login)
app.command()(accounts.logout)
app.command("accounts")(accounts.list_accounts)
app.command("learn-from")(learning_from.learn_from)
app.command()(doctor.doctor)
app.command()(report.report)
app.command()(evaluate.evaluate)
app.command()(config.enforce)
app.command()(config.shadow)
app.add_typer(trust.tools, name="tools")
app.add_typer(trust.trust, name="trust")
app.add_typer(database.audit_app, name="audit")
app.add_typer(config.app, name="config")
app.add_typer(config.control_app, name="control")
app.add_typer(database.app, name="db")
app.add_typer(embedder.app, name="embedder")
app.add_typer(knowledge.app, name="knowledge")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"riglm {version('riglm')}")
        raise typer.Exit


@app.callback()
def _riglm(
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A drop-in MCP proxy that records which tools are used."""


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use, configuration or data."""
    try:
        app()
    except UnusableInputError as error:
        _fail(error, 2)
    except RiglmError as error:
        _fail(error, 1)


def _fail(error: RiglmError, code: int) -> None:
    typer.echo(f"riglm: {printable_lines(str(error))}", err=True)
    sys.exit(code)
