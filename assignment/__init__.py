"""The tree students work in: one package per unit of the course, and `provided`."""
