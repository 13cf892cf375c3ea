"""Statistics: pure functions of arrays."""
