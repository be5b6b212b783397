"""The way of last resort: HTTPS requests that wait, for hospitals whose proxy lets nothing else through.

Belongs here: signing requests and answers, sessions, an HTTPS server and a client behind `transport.link`. Does not: what a
frame is or when it is sent again (`transport.link`), who is a member (`transport.credentials`).
"""
