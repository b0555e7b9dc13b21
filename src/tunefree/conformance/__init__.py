"""Whether an algorithm, ours or a stranger's, keeps to the contract, and what it costs."""
