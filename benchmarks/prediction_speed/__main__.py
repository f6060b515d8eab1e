"""What prediction costs a client: one prediction, a list, the event loop while tools are embedded, a start, memory.

usage: python -m benchmarks.prediction_speed [--only deciding|serving]
"""

import argparse

from benchmarks.prediction_speed import deciding, serving

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--only", choices=("deciding", "serving"), help="one half of it")
arguments = parser.parse_args()

if arguments.only != "serving":
    deciding.run()
if arguments.only != "deciding":
    serving.run()
