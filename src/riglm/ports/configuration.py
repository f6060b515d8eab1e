"""The configuration as a document: shown, changed and written back."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from riglm.domain.schemas.settings import Settings

KeyPath = tuple[str, ...]
"""The location of a value in the configuration: keys from the top."""


class StagedFile(Protocol):
    """A configuration file that is written and valid, next to the one that it will replace."""

    @abstractmethod
    def take_over(self) -> None:
        """Put it in the place of the file; blocks.

        Raises:
            Conflict: it cannot be put there, or the file has changed meanwhile.
        """

    @abstractmethod
    def discard(self) -> None:
        """Leave the file as it is; blocks, and does nothing once it has taken over."""


@runtime_checkable
class ConfigurationPort(Protocol):
    """Reads changes to a configuration, and writes them to where it came from.

    A change is a document of any part of the configuration: what it leaves out stays, null means the default, and so
    does what equals the value shown, masks included.
    """

    @abstractmethod
    def shown(self, settings: Settings) -> dict[str, Any]:
        """The settings as a document, with masks in the place of secrets."""

    @abstractmethod
    def merged(self, settings: Settings, document: Mapping[str, Any]) -> Settings:
        """The settings with a document merged in.

        Raises:
            Invalid: the whole is not valid; every place is named.
        """

    @abstractmethod
    def differences(self, before: Settings, after: Settings) -> tuple[KeyPath, ...]:
        """Where two configurations differ, in the order of the schema."""

    @abstractmethod
    def write_temporary(
        self, settings: Settings, document: Mapping[str, Any], is_written: Callable[[KeyPath], bool]
    ) -> StagedFile | None:
        """Write a merged change into `settings` next to the file; None if the file has all of it already.

        Blocks. The file is changed to match the document at the paths for which `is_written` is True.

        Raises:
            Invalid: the file would not be valid with the change, or is not valid now.
            Conflict: there is no file, it cannot be written, an environment variable overrides the value, or the file
            was changed at such a path since it was read.
        """
