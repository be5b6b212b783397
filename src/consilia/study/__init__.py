"""What is above a single run: searches of hyper-parameters. A search starts runs by `federation.session`; no run knows of it.

Belongs here: reading a tune file, the price of a search, the order of its trials. Not here: what a trial does.
"""
