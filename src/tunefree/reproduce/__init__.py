"""The papers' claims, played and decided."""
