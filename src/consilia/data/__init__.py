"""Rows at a site: sources, the table they become, partitions of it, splits, batches and checks.

Numpy only. Nothing here knows of models or plans.
"""
