"""The reference: the one source from which the stubs in assignment/ are generated."""
