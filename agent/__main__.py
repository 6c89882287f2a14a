"""`python -m agent`: the same as the `rejoinder` command."""

from agent.cli import main

main()
