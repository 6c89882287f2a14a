"""A lean SIP user agent (RFC 3261): pure from the bytes of a message to the state of a call.

`parser` and `message` read and write, `transaction` retransmits, `dialog` and `call` keep a call's state, `agent` joins
them: it is fed `(event, now)` and answers with messages to send and events to act on. Only `transport` knows sockets.
"""
