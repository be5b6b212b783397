"""The command line: one small file a command. Heavy imports wait until a command needs them."""
