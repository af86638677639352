"""What the parts of speculative decoding say to each other.

Draft, NO_TOKEN   drafted tokens, and the distributions they were drawn from
SessionParts      a session made of functions, for tests
TreePast          a model that reads branches of one sequence in one call; LlamaPast is one,
                  TreePastParts is made of functions, for tests
"""

from .draft import NO_TOKEN, Draft
from .session_parts import SessionParts
from .tree_past import LlamaPast, TreePast, TreePastParts

__all__ = ["NO_TOKEN", "Draft", "LlamaPast", "SessionParts", "TreePast", "TreePastParts"]
