"""`python -m riglm`."""

from riglm.cli.main import main

main()
