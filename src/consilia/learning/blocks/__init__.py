"""Parts that models of the catalogue are built of, each of which treats every example alone. Whole models stand in `models`."""
