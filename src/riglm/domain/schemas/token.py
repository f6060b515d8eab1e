"""Tokens that a user chose: what one must be like to guard anything."""

import re

from pydantic import SecretStr

from riglm.domain.schemas.base import problem

_PLACEHOLDER = re.compile(
    r"(?i)(your|my|the|change|replace|insert|example|placeholder|secret|token|password|api|key|admin|test|default|here"
    r"|me|this|x|0|1|-|_)+"
)
_SHORTEST_TOKEN = 16


def usable_token(token: SecretStr | None, *, of: str | None = None) -> SecretStr | None:
    """The token, for a validator of a field; one that is too short, or invalid in a header, is an error.

    `of` names whose it is, where there are several.
    """
    if token is None:
        return None
    which = "the token" if of is None else f"the token of {of}"
    fix = f"use {_SHORTEST_TOKEN} or more letters and digits"
    if not re.fullmatch(r"[!-~]+", token.get_secret_value()):
        raise problem(f"{which} is empty or has spaces or unusual characters", fix)
    if len(token.get_secret_value()) < _SHORTEST_TOKEN:
        raise problem(f"{which} is too short and easy to guess", fix)
    return token


def refuse_placeholder(token: SecretStr | None, key: str) -> None:
    """Raise an error when the token under `key`, which guards a public address, looks like one out of an example."""
    if token is not None and _PLACEHOLDER.fullmatch(token.get_secret_value()):
        raise problem(
            "the token that guards a public address is easy to guess",
            "use random characters, for example of `openssl rand -hex 32`",
            key=key,
        )
