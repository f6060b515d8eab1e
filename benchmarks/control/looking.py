"""Somebody who looks when told to: as Prometheus that scrapes, or as the page.

    python -m benchmarks.control.looking PORT

Looks once for each line of its input, which is `scrape` or `page`, and ends with it.
"""

import http.client
import sys
import time
from typing import Final

_STEP: Final = 1_800  # the page shows a day in 48 of these, each from a whole half hour on
_STEPS: Final = 48


def main() -> int:
    """Look until nobody wants it any more."""
    port = int(sys.argv[1])
    for line in sys.stdin:
        _ask(port, ["/metrics"] if line.strip() == "scrape" else _page())
    return 0


def _page() -> list[str]:
    """What the page's first view asks."""
    until = int(time.time()) // _STEP * _STEP + _STEP
    since = until - _STEP * _STEPS
    return [
        "/health",
        "/config",
        f"/stats/summary?since={since}",
        f"/stats/series?since={since}&until={until}&buckets={_STEPS}",
        "/sessions?active=true&limit=50",
        f"/tools?since={since}&limit=1000",
    ]


def _ask(port: int, paths: list[str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for path in paths:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
    connection.close()


if __name__ == "__main__":
    sys.exit(main())
