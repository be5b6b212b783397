"""What must survive a kill: a site's ledger with its sealed releases, and the coordinator's journal.

Belongs here: tables, transactions, locks, crash points. Does not: a budget's rules (`dp.ledger`), rounds.
"""
