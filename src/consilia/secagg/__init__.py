"""Secure aggregation as pure state machines: messages in, messages out, randomness as an argument.

`params` and `roster` say what all must agree on, `messages` what is said. `client` with `state`, `rules` and `keyring` is a
site, `server` with `server_state` and `unmask` the coordinator, `graph` says who shares masks with whom, and `transcript` is
the signed record that sites check afterwards. How messages travel, and what is stored when, belongs to `rounds`.
"""
