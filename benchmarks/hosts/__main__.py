"""Which tools does each host load, directly and through riglm?

    python -m benchmarks.hosts [--only TEXT] [--json]

Sessions teach riglm which six of 60 tools are used. Then each host that npm has asks a scripted model on loopback, in
a network namespace without routes: directly, and after `riglm init` and `riglm enforce`. The model searches for a
hidden tool and calls it. Exit code 1 if a learned tool is not loaded, more is loaded than the short list, or the hidden
tool was not reached. It needs Linux and `unshare`.
"""

import argparse
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.cache import InstallationFailed
from benchmarks.clients.installed import installed
from benchmarks.hosts.measuring import Row, learn, measured
from benchmarks.hosts.rows import HOSTS, Host

_UP: Final = 0x41  # IFF_UP and IFF_RUNNING
_SET_FLAGS: Final = 0x8914


def _row(host: Host, home: Path, learned: Path) -> Row:
    try:
        return measured(host, installed(host.package, host.version), home, learned)
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        nothing = dict.fromkeys(("direct", "direct_bytes", "listed", "meta_tools", "bytes", "learned"), 0)
        return Row(host=host.title, version=host.version, reached=False, trouble=str(error), **nothing)


def _isolate(arguments: Sequence[str]) -> None:
    """Become the same program in a network namespace with nothing but loopback."""
    again = [sys.executable, "-m", "benchmarks.hosts", *arguments, "--isolated"]
    os.execvp("unshare", ["unshare", "--net", "--map-root-user", *again])


def _raise_loopback() -> None:
    with socket.socket() as link:
        fcntl.ioctl(link, _SET_FLAGS, struct.pack("16sh", b"lo", _UP))


def _line(row: Row) -> str:
    through = f"{row.listed} + {row.meta_tools}"
    verdict = row.trouble or ("yes" if row.is_right else f"NO: learned {row.learned}, reached {row.reached}")
    return f"{row.host:<58}{row.direct:>7}{row.direct_bytes:>9,}{through:>9}{row.bytes:>9,}  {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only hosts with this in their title")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--isolated", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    hosts = [host for host in HOSTS if given.only.lower() in host.title.lower()]
    try:
        for host in hosts:
            installed(host.package, host.version)
    except InstallationFailed as error:
        print(f"could not run: {error}", file=sys.stderr)
        return 2
    if not given.isolated:
        _isolate(sys.argv[1:])
    _raise_loopback()
    rows: list[Row] = []
    if not given.json:
        print(f"{'host':<58}{'direct':>7}{'bytes':>9}{'riglm':>9}{'bytes':>9}  as it must be")
    with tempfile.TemporaryDirectory(prefix="riglm-hosts-", ignore_cleanup_errors=True) as temporary:
        learn(Path(temporary) / "learned")
        for number, host in enumerate(hosts):
            rows.append(_row(host, Path(temporary) / f"home-{number}", Path(temporary) / "learned"))
            if not given.json:
                print(_line(rows[-1]), flush=True)
    if given.json:
        found: list[dict[str, Any]] = [asdict(row) | {"is_right": row.is_right} for row in rows]
        print(json.dumps(found, indent=1))
    return 0 if all(row.is_right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
