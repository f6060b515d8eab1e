"""Which command lines start riglm."""

import re
from collections.abc import Sequence
from itertools import dropwhile
from typing import Final

from riglm.domain.command_line import RUNNER_VERBS

_PYTHON: Final = re.compile(r"python[\d.]*|pypy[\d.]*|py")
_UNPACKERS: Final = frozenset({"uvx", "uv", "pipx"})
_WRAPPERS: Final = frozenset({"env", "cmd"})
_PACKAGE: Final = re.compile(r"riglm(?:\[[\w,-]*\])?(?:(?:@|==).*)?")
_TAKING_A_VALUE: Final = frozenset(
    {"--from", "--with", "--spec", "--python", "-p", "--directory", "--project", "--index-url", "--extra", "-W", "-X"}
)


def starts_riglm(words: Sequence[str]) -> bool:
    """True if a command line starts riglm: by its name, as a module of Python, or by a package runner.

    A word `riglm` among the arguments of another program, a directory for instance, does not count.
    """
    if not words:
        return False
    program, rest = _name(words[0]), list(words[1:])
    if program in _WRAPPERS:
        return starts_riglm(list(dropwhile(lambda word: "=" in word or word.startswith(("-", "/")), rest)))
    if _PYTHON.fullmatch(program):
        options = _before_the_first_argument(rest)
        return rest[options : options + 2] == ["-m", "riglm"]
    if program in _UNPACKERS:
        return _unpacked(rest)
    return program == "riglm"


def _unpacked(rest: Sequence[str]) -> bool:
    """True if what follows `uvx`, `uv` or `pipx` is riglm, perhaps started by a Python of a separate environment."""
    while rest:
        rest = rest[_before_the_first_argument(rest) :]
        if not rest or rest[0] not in RUNNER_VERBS:
            break
        rest = rest[1:]
    return bool(rest) and (_PACKAGE.fullmatch(rest[0]) is not None or starts_riglm(rest))


def _before_the_first_argument(words: Sequence[str]) -> int:
    """How many words are options and their values; `-m` is what is looked for, and none of them."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        at += 2 if words[at] in _TAKING_A_VALUE else 1
    return at


def _name(program: str) -> str:
    return program.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")
