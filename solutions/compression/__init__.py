"""Compression: fewer bits for each number, and fewer numbers."""
