"""What a site does to an update before it leaves, and what the server does to undo it.

A transform is one object with both halves; its contract says before any data is read what it needs and what it gives.
"""
