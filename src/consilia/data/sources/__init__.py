"""Readers of files: each turns one kind of file into a `Table` or raises one `DataError` with every fault."""
