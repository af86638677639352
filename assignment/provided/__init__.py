"""Given code: models to run your work on, and the instruments that measure it. Do not edit it.

Grading always uses the original of this package. Nothing in here imports a file you write.
"""
