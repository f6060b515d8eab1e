"""What prediction costs a client: one prediction, a list, the event loop while tools are embedded, a start, memory.

usage: python -m benchmarks.prediction_speed [--only deciding|serving|first_list]
"""

import argparse

from benchmarks.prediction_speed import deciding, first_list, serving

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARTS = {"deciding": deciding.run, "serving": serving.run, "first_list": first_list.run}
parser.add_argument("--only", choices=PARTS, help="one part of it")
only = parser.parse_args().only

for name, run in PARTS.items():
    if only in (None, name):
        run()
