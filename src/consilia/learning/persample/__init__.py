"""Sums of clipped per-example gradients, by closed form where the model allows it."""
