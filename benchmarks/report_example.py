"""A store that a hundred made-up sessions in shadow mode left: what `riglm report` is shown with in the documents.

Five workflows of six tools among sixty of four servers, one call in twenty any other tool, over ten days.

    python -m benchmarks.report_example DIRECTORY
    RIGLM_DATA_DIR=DIRECTORY riglm report
"""

import argparse
from pathlib import Path

from tests.unit.application.reports.shadowed import worked

from riglm.adapters.analytics.sql import SqlAnalytics


def main() -> None:
    """Make the store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="a data directory without a store")
    parser.add_argument("--sessions", type=int, default=100)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    with SqlAnalytics(f"sqlite:///{given.directory / 'riglm.db'}") as store:
        store.record_many(worked(given.sessions))


if __name__ == "__main__":
    main()
