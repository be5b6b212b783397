"""Rounds that wait for no one: sites train when they can, and a round adds what those have that are ready.

Belongs here: who is ready, and what an update counts for that began some steps ago. Not: sums and admission, which are those of
`rounds` and `rounds.secure`.
"""
