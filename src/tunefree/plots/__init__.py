"""All matplotlib figures; only this package imports matplotlib."""
