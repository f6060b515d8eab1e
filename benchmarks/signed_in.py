"""What a call costs over HTTP with the token of an account, compared with a fixed token in the configuration.

    python -m benchmarks.signed_in [--rounds 30] [--json]

Two `riglm run` in front of the same fast server are visited in turn, 500 calls each. `cpu_us` is the processor time of
riglm for one call, `us` the time that its client waits: medians of the rounds. The ratio is the median of those of the
rounds.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.load.message import echo
from benchmarks.load.stdio_session import StdioSession, clock
from benchmarks.process import Process, free_port, listens
from benchmarks.subject import RIGLM, isolated
from riglm.adapters.mcp.oauth.accounts import Account
from riglm.container import Container

CALLS = 500


def sign_in(directory: Path, url: str) -> None:
    """Store an account for the server, as `riglm login` does."""
    os.environ["RIGLM_DATA_DIR"] = str(directory)
    endpoint = "http://127.0.0.1:9/token"
    Container().account_file().save(
        Account(
            server="bench", url=url, issuer=endpoint, token_endpoint=endpoint, client_id="riglm", access_token="token"
        )
    )


def open_session(directory: Path, url: str, auth: dict[str, str] | None) -> StdioSession:
    directory.mkdir(exist_ok=True)
    server = {"url": url} | ({"auth": auth} if auth else {})
    (directory / "riglm.yaml").write_text(json.dumps({"mcpServers": {"bench": server}}))
    session = StdioSession(
        (*RIGLM, "run", "--no-filter", "--config", "riglm.yaml"), directory / "log", isolated(directory), directory
    )
    session.open()
    session.flood(echo("x"), CALLS, 1)
    return session


def cpu_seconds(pid: int) -> float:
    """The processor time that the scheduler counted for the threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure(session: StdioSession) -> dict[str, float]:
    cpu, start = cpu_seconds(session.pid), clock()
    session.flood(echo("x"), CALLS, 1)
    return {"us": (clock() - start) / CALLS * 1e6, "cpu_us": (cpu_seconds(session.pid) - cpu) / CALLS * 1e6}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--json", action="store_true", help="print JSON only")
    chosen = options.parse_args()
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        server = [sys.executable, "-m", "benchmarks.load.upstream", str(port), "20"]
        with Process(server, home / "upstream.log") as upstream:
            upstream.wait_until(lambda: listens(port))
            sign_in(home / "account", url)
            fixed = open_session(home / "fixed", url, {"token": "token"})
            account = open_session(home / "account", url, None)
            pairs = [(measure(fixed), measure(account)) for _ in range(chosen.rounds)]
            fixed.close()
            account.close()
    found = {
        unit: {
            "fixed": round(median(one[unit] for one, _ in pairs), 1),
            "account": round(median(other[unit] for _, other in pairs), 1),
            "ratio": round(median(other[unit] / one[unit] for one, other in pairs), 3),
        }
        for unit in ("us", "cpu_us")
    }
    if chosen.json:
        print(json.dumps(found))
    else:
        for unit, row in found.items():
            print(f"{unit:7}fixed {row['fixed']:8}  account {row['account']:8}  ratio {row['ratio']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
