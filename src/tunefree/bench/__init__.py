"""Our speed beside the loop that everybody writes."""
