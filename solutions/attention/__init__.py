"""Attention and the KV cache: what a decode step reads, and how to make it read less."""
