"""Serving: many requests at once, in memory that is shared and in steps that are shared."""
