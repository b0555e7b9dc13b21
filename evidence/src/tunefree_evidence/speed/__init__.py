"""Our speed compared with a hand-written PyTorch loop."""
