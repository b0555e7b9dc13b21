"""The papers' claims, run and decided."""
