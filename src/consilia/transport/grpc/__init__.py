"""Streams over gRPC with mutual TLS: sites and operators dial, the coordinator listens.

Belongs here: sockets, TLS, and refusals that say why. Does not: messages and their delivery (`transport.link`), certificates
(`transport.credentials`). Bytes go through gRPC as they are: no message type, no generated code.
"""
