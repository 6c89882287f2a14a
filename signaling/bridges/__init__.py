"""Telephone systems that bring calls over a stream of their own: Twilio Media Streams, Asterisk AudioSocket and
Asterisk's WebSocket channel. All are off unless set up (docs/bridges.md)."""
