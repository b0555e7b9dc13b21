"""Data sets by name: where they come from and how they are read."""
