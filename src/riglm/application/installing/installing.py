"""What `riglm init` planned, done: each step can be taken back at any time, also when riglm is stopped in between."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from riglm.domain.errors import RiglmError
from riglm.domain.installation import Installation, InstallPlan, digest, digest_of_configuration
from riglm.ports.clients import FilesPort, InstallationsPort


class Installer:
    """Writes plans down."""

    def __init__(
        self, *, files: FilesPort, installations: InstallationsPort, clock: Callable[[], float] = time.time
    ) -> None:
        """The clock gives seconds since the epoch."""
        self._files = files
        self._installations = installations
        self._clock = clock

    def install_each(self, plans: Iterable[InstallPlan]) -> tuple[InstallPlan, ...]:
        """Install these, whatever becomes of the others; the plans, with a fault where one could not be done."""
        return tuple(map(self._tried, plans))

    def _tried(self, plan: InstallPlan) -> InstallPlan:
        try:
            self.install(plan)
        except RiglmError as error:
            return replace(plan, fault=str(error))
        return plan

    def install(self, plan: InstallPlan) -> None:
        """Keep a copy, note the change, write riglm's configuration, and then the client's file.

        Raises:
            RiglmError: something cannot be written, or became another file meanwhile; nothing is changed then.
        """
        if not plan.changes:
            return
        configured, client = plan.rewritings
        is_ours = configured.before is None or digest_of_configuration(configured.before) == self._configured(plan)
        installation = Installation(
            place=plan.place,
            configuration=plan.configuration,
            entry=plan.entry,
            command=plan.command,
            servers={move.name: move.behind for move in plan.moves},
            before=self._installations.keep(plan.place, client.before or b""),
            after=digest(client.after or b""),
            configured=digest_of_configuration(configured.after or b"") if is_ours else "",
            at=self._clock(),
        )
        self._installations.add(installation)
        try:
            self._files.write(configured.file, configured.before, configured.after)
            try:
                self._files.write(client.file, client.before, client.after)
            except BaseException:
                self._files.write(configured.file, configured.after, configured.before)
                raise
        except BaseException:
            self._installations.drop([installation])
            raise

    def _configured(self, plan: InstallPlan) -> str:
        """The digest of riglm's configuration as it was written last."""
        found = (each.configured for each in self._installations.all() if each.configuration == plan.configuration)
        return next(iter(deque(found, maxlen=1)), "")
