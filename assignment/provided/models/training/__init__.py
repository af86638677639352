"""A training loop for small models on a CPU, and what a language model needs around it.

    Batches          documents of like length together, a batch for every step
    next_token_loss  what a language model is trained on
    optimizers       Muon for the matrices, AdamW for the rest
    train            the loop; it can be stopped and resumed at any time
    progress         a progress bar for it

A loss is a function of the step's number, as `Batches` are, and keeps no count of its own. A run
that was resumed therefore ends with exactly the weights of one that was not.
"""

from .batches import Batches, next_token_loss, padded
from .loop import progress, train
from .muon import Muon, optimizers

__all__ = ["Batches", "Muon", "next_token_loss", "optimizers", "padded", "progress", "train"]
