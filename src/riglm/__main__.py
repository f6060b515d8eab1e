"""`python -m riglm`."""

from riglm.cli.entry import main

main()
