"""Programs, looked for and asked for their version."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from riglm.ports.examining import ProgramsPort

_PATIENCE_SECONDS: Final = 10.0
_VERSION: Final = re.compile(r"riglm (\S+)")


class Programs(ProgramsPort):
    """The programs of this machine."""

    def found(self, program: str) -> str | None:
        """The path of a program, as a shell would find it."""
        return shutil.which(program)

    def version_of_riglm(self, command: Sequence[str]) -> str | None:
        """What `riglm --version` says, of the riglm that a command starts with `run` or `serve`."""
        words = list(command)
        end = next((at for at, word in enumerate(words) if word in {"run", "serve"}), 1)
        try:
            done = subprocess.run(
                [*words[:end], "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        told = _VERSION.match(done.stdout.decode("utf-8", "replace"))
        return told[1] if told else None
