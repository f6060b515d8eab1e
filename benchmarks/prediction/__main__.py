"""What each family of signals adds, how fast a workflow is learned, and what a prediction costs.

usage: python -m benchmarks.prediction [--data DIR] [names...]

Without --data only the learning curve and the times are measured, which need no data.
"""

import argparse
from pathlib import Path

from benchmarks.prediction import ablation, curve, speed

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, help="a directory of sets with sessions")
parser.add_argument("names", nargs="*", help="sets; all with sessions when none is named")
arguments = parser.parse_args()

curve.run()
speed.run()
if arguments.data:
    ablation.run(arguments.data, arguments.names)
