"""`make distil`: half of the toy target, and what it learns from whom.

recipe      the student is found and pruned; the ways to train it
measure     nats a token over the grammar, on the way and at the end
"""
