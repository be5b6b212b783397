"""Who is at the other end: certificates, the consortium's signed roster of its members, and a member's own keys.

Belongs here: making, signing, reading and checking them. Does not: sockets (`transport.grpc`,
`transport.longpoll`), prompts (`cli`).
"""
