"""What in a configuration is a secret beyond doubt: for a warning, which must not be raised for nothing.

What is covered in logs and answers is far more, since covering too much does no harm.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from riglm.domain.chance import begins_like_a_key
from riglm.domain.schemas.base import SecretMap
from riglm.domain.schemas.server import Server
from riglm.domain.schemas.settings import Settings
from riglm.domain.secret import passwords_of_url, sounds_secret

_SHORTEST: Final = 8
"""What is shorter is rather a number or a switch, whatever it is called."""


def certain_secrets(settings: Settings) -> tuple[str, ...]:
    """Tokens, keys and passwords, and what servers are given under such names."""
    found = [*settings.own_secrets]
    for server in [*([settings.upstream] if settings.upstream else []), *settings.mcp_servers.values()]:
        found += _of_server(server)
    return tuple(secret for secret in found if len(secret) >= _SHORTEST)


def _of_server(server: Server) -> Iterator[str]:
    if server.auth:
        yield server.auth.token.get_secret_value()
    yield from _of_map(server.env)
    yield from _of_map(server.headers)
    yield from passwords_of_url(server.url)
    yield from _of_words(server.command + server.args)


def _of_words(words: Sequence[str]) -> Iterator[str]:
    for word, after in pairwise((*words, "")):
        option, equals, value = word.partition("=")
        if begins_like_a_key(word):
            yield word
        elif option.startswith("-") and sounds_secret(option):
            yield value if equals else after


def _of_map(given: SecretMap) -> Iterator[str]:
    for name, value in given.items():
        text = value.get_secret_value()
        if sounds_secret(name) or begins_like_a_key(text):
            yield text
