"""What the server does with updates: admission, the rule that combines them, and the optimizer step. No I/O."""
