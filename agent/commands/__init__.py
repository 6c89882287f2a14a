"""The subcommands of `rejoinder`, one a file: each has `configure(parser)` and `run(args, settings) -> int`.

Only the one that is asked for is imported, so that `rejoinder token` does not wait for engines to load.
"""
