"""The command lines in a page, and whether riglm would understand them. Nothing is run."""

import re
import shlex
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer
from typer._click.core import Context
from typer._click.exceptions import ClickException

from riglm.cli.main import app

_ROOT: Any = typer.main.get_command(app)
_SHELL = {"sh", "bash", "console", "shell"}
_ENDS = {"|", "||", "&&", ";", "&", "(", ")", "$("}
_OR = "¦"
"""Stands for a `|` between alternatives, as in `retrieval|usage`, which is no pipe."""
_HERE_DOCUMENT = re.compile(r"<<-?'?(\w+)'?.*\n(?:.*\n)*?\1$", re.MULTILINE)


def lines_of(language: str, text: str) -> Iterator[tuple[int, str]]:
    """The commands of a shell block, each with its line in it; of a console those behind the prompt."""
    if language not in _SHELL:
        return
    text = _HERE_DOCUMENT.sub(lambda found: "\n" * found.group().count("\n"), text)
    joined, start = "", 0
    for number, line in enumerate(text.splitlines()):
        if not joined:
            if language == "console" and not line.startswith("$ "):
                continue
            start = number
        joined += line.removeprefix("$ ").removesuffix("\\")
        if not line.endswith("\\") and joined.count("'") % 2 == 0:
            yield start, joined
            joined = ""
    if joined:
        yield start, joined


def simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line that a shell would start one by one, without what it sets and redirects."""
    words: list[str] = []
    lexer = shlex.shlex(
        re.sub(r"(?<=\w)\|(?=\w)", _OR, line).replace("…", "").replace("$(", " ( "), posix=True, punctuation_chars=True
    )
    lexer.whitespace_split = True
    lexer.commenters = "#" if " #" in line or line.startswith("#") else ""
    for word in lexer:
        if word in _ENDS:
            yield words
            words = []
        elif words or not re.match(r"^\w+=", word):
            words.append(word)
    yield words


def wrong_with(words: list[str], *, whole: bool) -> str | None:
    """What riglm would say to these words after its name; `whole` if they are meant to be typed as they are."""
    for position, word in enumerate(words):
        if _OR in word:
            each = (
                wrong_with([*words[:position], one, *words[position + 1 :]], whole=whole) for one in word.split(_OR)
            )
            return next((wrong for wrong in each if wrong), None)
    if "<" in words or ">" in words or ">>" in words:
        words = words[: min(words.index(sign) for sign in ("<", ">", ">>") if sign in words)]
    command, rest = _ROOT, [word for word in words if word not in {"...", "[", "]"}]
    try:
        while True:
            context = Context(command, info_name="riglm", **command.context_settings)
            values, left, _ = command.make_parser(context).parse_args(list(rest))
            if not hasattr(command, "commands"):
                return _wrong_values(command, values, left, whole=whole)
            if not left or (left[0].isupper() and not whole):
                return None
            if left[0] not in command.commands:
                return f"no command {left[0]!r}"
            command, rest = command.commands[left[0]], left[1:]
    except ClickException as error:
        return error.format_message()


def _wrong_values(command: Any, values: dict[str, Any], left: list[str], *, whole: bool) -> str | None:
    if left:
        return f"an argument too many: {left[0]!r}"
    for parameter in command.params:
        value = values.get(parameter.name)
        if whole and parameter.required and value in (None, (), []):
            return f"{parameter.name} is missing"
        choices = _choices(parameter.type_descriptor.annotation)
        given = value if isinstance(value, list | tuple) else [value]
        for one in given if choices else ():
            if isinstance(one, str) and not one.isupper() and one not in choices:
                return f"{parameter.name} cannot be {one!r}"
    return None


def _choices(annotation: Any) -> set[str]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {str(each.value) for each in annotation}
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return set().union(*(_choices(each) for each in typing.get_args(annotation)))


def all_options() -> set[str]:
    """Every option of every command, as it is spelt."""
    found, commands = set(), [_ROOT]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        context = Context(command, info_name="riglm")
        for parameter in command.get_params(context):
            found |= {option for option in (*parameter.opts, *parameter.secondary_opts) if option.startswith("-")}
    return found
