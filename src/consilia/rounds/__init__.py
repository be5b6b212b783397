"""The loop: a coordinator and sites that exchange bytes, round after round.

Belongs here: who asks, who answers, what counts, what is written down. Does not: sockets (transport) or pages (report).
"""
