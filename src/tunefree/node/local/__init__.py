"""A federation on this machine."""
