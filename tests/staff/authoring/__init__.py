"""Tools for those who write the course: stubs, release bundle, mutants, new problems."""
