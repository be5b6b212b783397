"""One-shot private stacking, for sites that can answer only once: several private models, and one on their outputs."""
