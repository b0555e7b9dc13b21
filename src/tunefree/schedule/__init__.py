"""Who works when: two loops, synchronous and buffered, given a fleet, a clock and a membership."""
