"""Many runs at once: methods compared, step sizes tuned and swept."""
