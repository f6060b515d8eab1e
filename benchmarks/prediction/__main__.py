"""What each family of signals adds, how fast a workflow is learned, and what predictions and first lists cost.

usage: python -m benchmarks.prediction [fit] [--data DIR] [names...]

Without --data only the learning curve and the times are measured, which need no data. `fit` prints the default weights
of the hybrid instead; it needs --data.
"""

import argparse
from pathlib import Path

from benchmarks.prediction import ablation, curve, first_list, fit, speed

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, help="a directory of sets with sessions")
parser.add_argument("names", nargs="*", help="sets; all with sessions when none is named")
arguments = parser.parse_args()

if arguments.names[:1] == ["fit"] and arguments.data:
    fit.run(arguments.data, arguments.names[1:])
else:
    curve.run()
    speed.run()
    first_list.run()
    if arguments.data:
        ablation.run(arguments.data, arguments.names)
