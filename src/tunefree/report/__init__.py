"""Run files -> methods -> one HTML page, or figures; opens fast because it never needs torch."""
