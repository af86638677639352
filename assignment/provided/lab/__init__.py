"""Instruments: what a piece of torch code costs, without a clock."""

from .cost import Cost
from .counter import CostCounter, LeftTorch, counting_suspended

__all__ = ["Cost", "CostCounter", "LeftTorch", "counting_suspended"]
