"""Reports: figures, the privacy card and one self-contained page, all from records and never from live objects."""
