"""Measurements and comparisons made of whole runs."""
