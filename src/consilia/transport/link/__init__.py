"""Messages between the coordinator and its sites over streams of small packets, whatever carries the streams.

Belongs here: packets, spooling, resumption, the coordinator's hub, a site's courier. Does not: sockets and TLS
(`transport.grpc`), and what a frame means (`rounds`).
"""
