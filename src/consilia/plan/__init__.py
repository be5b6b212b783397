"""From a TOML file to a checked plan: the schema, the loader, the rules that no single contract can see.

Belongs here: what a plan may say and what follows from it before training.
Does not: rounds, files of a site, reports.
"""
