"""Speculative decoding: a cheap guess, checked by the target in one call."""
