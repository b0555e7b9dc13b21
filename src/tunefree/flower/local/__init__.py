"""A whole federation on this machine."""
