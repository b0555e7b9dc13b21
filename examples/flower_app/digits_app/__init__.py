"""A Flower app as its users write them."""
