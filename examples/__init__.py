"""Examples; each runs by itself from the root of the repository."""
