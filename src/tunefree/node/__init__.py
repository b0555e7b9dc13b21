"""Our own Flower node, bound to the versions of Flower that it was written for."""
