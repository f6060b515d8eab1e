"""User and password in the URL of a store."""

from pydantic import SecretStr

from riglm.domain.schemas.base import problem
from riglm.domain.secret import is_clearly_written


def clearly_written(url: SecretStr | None) -> SecretStr | None:
    """The URL, for a validator to give back.

    Raises a problem, which does not show them, for a user or password that others would cut off too early.
    """
    if url is not None and not is_clearly_written(url.get_secret_value()):
        raise problem(
            "the user or the password in this URL contains a character that must be percent-encoded",
            "write / as %2F, ? as %3F, # as %23, @ as %40, [ as %5B, ] as %5D, % as %25 and a space as %20, in all "
            "parts before the @ of the host and after it",
        )
    return url
