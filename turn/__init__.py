"""TURN (RFC 8656): relays for callers whose network lets no media through.

`credentials` mints what a caller shows to the relay; `peers` says whom a relay must never reach; `coturn` writes the
relay's configuration and `service` runs it; `probe` proves that a relayed path works. docs/turn.md is the guide.
"""
