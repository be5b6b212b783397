"""Mechanisms, events, accountants, calibration, and the ledger's rules. No disk, no clock, no torch."""
