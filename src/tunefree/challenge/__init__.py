"""The challenge: methods without a knob against tuned ones, on tasks that were fixed beforehand."""
