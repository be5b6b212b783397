"""Studies of accuracy and speed; each script regenerates its own table."""
