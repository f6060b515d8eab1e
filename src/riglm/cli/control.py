"""`riglm control`: tokens and schema for users of the control API."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from riglm.cli.output import ConfigOption, JsonOption, print_json
from riglm.domain.errors import RiglmError

if TYPE_CHECKING:
    from riglm.domain.schemas.downstream import ControlSettings


app = typer.Typer(name="control", help="Manage the control API.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _control() -> None:
    """The control API."""


@app.command()
def token(
    new: Annotated[
        bool, typer.Option("--new", help="Replace the tokens that there are; a riglm that runs rejects these at once.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the tokens of the control API and show them, once: only their hashes are kept."""
    from riglm.adapters.configuration.loading import Options, load
    from riglm.adapters.configuration.locations import data_directory
    from riglm.adapters.control.tokens import FILE_NAME, TokenFile, create_tokens

    control = load(Options(config=config, with_servers=False)).settings.control
    file = TokenFile(data_directory(os.environ) / FILE_NAME)
    if not new and file.read() is not None:
        raise RiglmError(
            f"the tokens in {file.path} were shown before, and only their hashes are kept — fix: riglm control token "
            "--new makes others"
        )
    tokens = create_tokens()
    file.write(tokens)
    if as_json:
        print_json(tokens)
    else:
        for scope, text in tokens.items():
            typer.echo(f"{scope:6}{text}")
    _warn_of_configured(control)


def _warn_of_configured(control: "ControlSettings") -> None:
    for key, given in (("token", control.token), ("read_token", control.read_token)):
        if given is not None:
            scope = "write" if key == "token" else "read"
            typer.echo(f"control.{key} is set: it counts in place of the {scope} token", err=True)
