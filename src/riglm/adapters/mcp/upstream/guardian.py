"""Ends the children of a riglm that died without ending them itself."""

import contextlib
import logging
import os
import subprocess
from typing import Final

_log = logging.getLogger("riglm.upstream")

_GRACE_SECONDS: Final = 1
_WAIT_SECONDS: Final = 3

_SCRIPT: Final = f"""
trap '' INT TERM HUP
groups=' '
while read -r change group; do
  case $change in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${{groups%% "$group" *}} ${{groups#* "$group" }}" ;; esac ;;
  esac
done
alive=
for group in $groups; do kill -TERM -"$group" 2>/dev/null && alive="$alive $group"; done
if [ -n "$alive" ]; then
  sleep {_GRACE_SECONDS}
  for group in $alive; do kill -KILL -"$group" 2>/dev/null; done
fi
"""
"""Reads which process groups start (`+ PGID`) and end (`- PGID`) until its input ends: then riglm is dead.

A shell, because it waits for as long as riglm lives and a tenth of the memory of another Python does.
"""


class Guardian:
    """A process that outlives riglm just long enough to end what riglm started; it starts with the first child."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """End this process group when riglm dies."""
        if self._process is None:
            try:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _SCRIPT, "riglm-guardian"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                )
            except OSError as error:
                _log.warning(
                    "children are not watched: should riglm be killed, they stay", extra={"reason": str(error)}
                )
                return
        self._tell(b"+ %d\n" % group)

    def release(self, group: int) -> None:
        """The process group has ended."""
        self._tell(b"- %d\n" % group)

    def close(self) -> None:
        """Release the guardian; it ends the groups that it still watches."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_WAIT_SECONDS)
            self._process = None

    def _tell(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), line)
