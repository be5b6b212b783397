"""Fixed features of one row: public functions that see no other row, so computing them costs no privacy."""
