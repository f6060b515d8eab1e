"""What can go wrong, in words that a user can act on."""


class RiglmError(Exception):
    """riglm cannot go on; the message names the place and the fix."""


class UnusableInputError(RiglmError):
    """What the user gave cannot be used, be it a setting, an option or data; nothing was done."""


class ConfigurationError(UnusableInputError):
    """The configuration is not usable. Its message names the file, the path inside it, and the fix."""


class UpstreamUnavailableError(RiglmError):
    """An upstream cannot be reached, died, or did not answer in time."""


class AnalyticsUnavailableError(RiglmError):
    """The analytics store cannot be read or written; the cause is kept."""


class SchemaTooNewError(AnalyticsUnavailableError):
    """The store was written by a newer riglm; it is left untouched. Upgrade riglm or choose another store."""


class NoStoreError(AnalyticsUnavailableError, ConfigurationError):
    """What the configuration names as the store is a file of something else; it is left untouched."""


class StateUnavailableError(RiglmError):
    """What the processes share of their sessions cannot be read now; each goes on with what it knows itself."""


class SessionEndedError(RiglmError):
    """The client ended the session at another process."""
