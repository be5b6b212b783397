"""Speed and memory of runs, measured beside a bare PyTorch loop."""
