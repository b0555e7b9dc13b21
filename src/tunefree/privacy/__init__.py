"""Differential privacy: what a run may give away about a client, and what it has given away."""
