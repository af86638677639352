"""What the parts of a server say to each other.

Sampling, Completion   what a request asks for, and what it gets
Chunk, Step            what the scheduler plans for one call of the model
BlockCache             what the scheduler needs of a paged cache; CountedBlocks only counts
OutOfBlocks            how a paged cache says no
run_script             many calls of a cache in one go, for tests
ModelParts             a model whose parts are functions, for tests
static_steps           what static batching would have done, as steps
count_steps            steps in a few numbers
timeline_svg           steps as a picture, and block_tables_svg a paged cache
"""

from .answer import Answer
from .block_picture import block_tables_svg
from .blocks import BlockCache, CountedBlocks, OutOfBlocks
from .drive import drive
from .model_parts import ModelParts
from .picture import timeline_svg
from .sampling import Completion, Sampling
from .script import Outcome, run_script
from .spans import Counts, count_steps
from .static import StaticBatches, static_steps
from .step import Chunk, Step

__all__ = [
    "Answer",
    "BlockCache",
    "Chunk",
    "Completion",
    "CountedBlocks",
    "Counts",
    "ModelParts",
    "OutOfBlocks",
    "Outcome",
    "Sampling",
    "StaticBatches",
    "Step",
    "block_tables_svg",
    "count_steps",
    "drive",
    "run_script",
    "static_steps",
    "timeline_svg",
]
