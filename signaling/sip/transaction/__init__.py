"""Transactions (RFC 3261 section 17, RFC 6026): one request, its retransmissions and its responses."""
