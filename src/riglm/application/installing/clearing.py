"""What a `riglm init` or `riglm undo` that was stopped left beside the files that it wrote."""

from collections.abc import Iterable
from pathlib import Path

from riglm.ports.clients import ClientsPort, FilesPort, InstallationsPort


class Clearing:
    """Removes it from wherever riglm writes."""

    def __init__(
        self, *, clients: ClientsPort, files: FilesPort, installations: InstallationsPort, own: Iterable[Path]
    ) -> None:
        """`own` are the directories of riglm's own files."""
        self._clients = clients
        self._files = files
        self._installations = installations
        self._own = tuple(own)

    def clear(self, project: Path | None) -> tuple[Path, ...]:
        """Remove what is surely riglm's and old, and nothing else; these files."""
        places = [*self._clients.places(None), *(self._clients.places(project) if project is not None else ())]
        files = [place.file for place in places]
        for each in self._installations.all():
            files += [each.file, each.configuration]
        directories = dict.fromkeys([*(file.resolve().parent for file in files), *self._own])
        return tuple(file for directory in directories for file in self._files.clear(directory))
