"""Why a client's file cannot be changed by riglm."""

from riglm.domain.errors import ConfigurationError


class CannotChange(ConfigurationError):
    """The file is not what its client reads, or is written in a way that only people can change; see the text."""
