"""The challenge: untuned methods against tuned ones, on a fixed suite of tasks."""
