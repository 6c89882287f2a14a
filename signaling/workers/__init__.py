"""`serve --workers N`: one supervisor that owns the door, and N media processes that hold the calls.

`placement` and `restarts` decide (pure); `fleet` keeps the processes alive; `front` is the door; `worker` is what runs
in each process. docs/architecture.md says why it is built so.
"""
