"""What the control API and its page cost and show.

    python -m benchmarks.control NAME [options]

`page` measures how soon the dashboard is there, `screenshots` makes the pictures of the documentation, `schema` tries
whether the API keeps what its document promises, `cost` measures what it costs calls, `put` changes the configuration
under load, `questions` measures the store.
`python -m benchmarks.control NAME --help` tells the options.
"""

import sys
from importlib import import_module
from typing import Final

_NAMES: Final = ("cost", "page", "put", "questions", "schema", "screenshots")


def main() -> int:
    """Run the one that is named; its exit code."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in _NAMES:
        print(__doc__, file=sys.stderr)
        return 2
    return int(import_module(f"benchmarks.control.{name}").main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
