"""Many runs at once: compare methods, tune step sizes, sweep a step size."""
