"""The evidence for tunefree: claims, challenge, speed."""
