"""What the parts of a server say to each other.

Sampling, Completion   what a request asks for, and what it gets
Chunk, Step            what the scheduler plans for one call of the model
BlockCache             what the scheduler needs of a paged cache; CountedBlocks only counts
OutOfBlocks            how a paged cache says no
run_script             many calls of a cache in one go, for tests
ModelParts             a model whose parts are functions, for tests
"""

from .answer import Answer
from .blocks import BlockCache, CountedBlocks, OutOfBlocks
from .drive import drive
from .model_parts import ModelParts
from .sampling import Completion, Sampling
from .script import Outcome, run_script
from .step import Chunk, Step

__all__ = [
    "Answer",
    "BlockCache",
    "Chunk",
    "Completion",
    "CountedBlocks",
    "ModelParts",
    "OutOfBlocks",
    "Outcome",
    "Sampling",
    "Step",
    "drive",
    "run_script",
]
