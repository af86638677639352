"""The review sheet: reading it, understanding its answers, and the key."""
