"""Many small sites of a simulated round trained at once: the same results as one by one, up to rounding."""
