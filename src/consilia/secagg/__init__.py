"""Secure aggregation as pure state machines: messages in, messages out, randomness as an argument."""
