"""Accounting: what inference costs in time, bytes and FLOPs, before anything is built."""
