"""Why a configuration file cannot be changed by a program."""

from riglm.domain.errors import ConfigurationError


class CannotEdit(ConfigurationError):
    """The file is written in a way that only people can change; the text names the obstacle."""
