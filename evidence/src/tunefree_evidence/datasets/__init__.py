"""The papers' data sets: where their files are found or fetched, and how they are read."""
