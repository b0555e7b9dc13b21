"""Whether an algorithm, ours or a user's own, follows the contract, and what it costs."""
