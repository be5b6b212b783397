"""Types, errors, vectors, randomness and the wire format: what every layer above may use.

Belongs here: plain values and pure functions. Does not: files, sockets, clocks, databases, torch.
"""
