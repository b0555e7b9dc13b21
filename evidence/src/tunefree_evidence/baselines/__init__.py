"""Methods that others are only compared with; `tunefree` knows them by name."""
