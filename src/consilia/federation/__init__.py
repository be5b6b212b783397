"""Puts a run together: keys, rows, ledgers and transport, for sites of one process or for sites of their own.

Belongs here: what is needed to begin, resume and end a run or to serve one. Does not: the rounds' rules (`rounds`), moving bytes
(`transport`).
"""
