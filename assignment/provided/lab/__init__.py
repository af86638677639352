"""Instruments: what a piece of torch code costs, without a clock, and what chips can do."""

from .chips import CHIPS, Chip
from .cost import Cost
from .counter import CostCounter, LeftTorch, counting_suspended

__all__ = ["CHIPS", "Chip", "Cost", "CostCounter", "LeftTorch", "counting_suspended"]
