"""Somebody who looks: Prometheus that scrapes every second, and the page, which asks every two.

    python -m benchmarks.control.looking PORT

Says `looking` once all has been answered, and goes on until its input ends.
"""

import http.client
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

SCRAPE_SECONDS: Final = 1.0
PAGE_SECONDS: Final = 2.0
_STEP: Final = 1_800  # the page shows a day in 48 of these, each from a whole half hour on
_STEPS: Final = 48


def main() -> int:
    """Look until nobody listens."""
    port = int(sys.argv[1])
    over = threading.Event()
    _ask(port, ["/metrics", *_page()])
    lookers = [
        threading.Thread(target=_look, args=(port, over, SCRAPE_SECONDS, lambda: ["/metrics"])),
        threading.Thread(target=_look, args=(port, over, PAGE_SECONDS, _page)),
    ]
    for each in lookers:
        each.start()
    print("looking", flush=True)
    sys.stdin.read()
    over.set()
    for each in lookers:
        each.join()
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


def _look(port: int, over: threading.Event, seconds: float, paths: Callable[[], list[str]]) -> None:
    while not over.wait(seconds):
        _ask(port, paths())


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
