"""Ways to move frames between the coordinator and sites: implementations of `rounds.ports.Transport`."""
