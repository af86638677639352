"""One answer in the making: its tokens so far, and whether it is finished."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from .sampling import Completion, Sampling


class Answer:
    """Answer number `sample` of a request with this `sampling`.

    tokens, logprobs, finish_reason: as in `Completion`; finish_reason may be set to "abort".
    on_token: (sample, token) -> None, or None: whom to tell of each token.
    """

    def __init__(
        self, sampling: Sampling, sample: int, on_token: Callable[[int, int], None] | None = None
    ):
        self.sampling, self.sample, self.on_token = sampling, sample, on_token
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.finish_reason: str | None = None

    @property
    def uniform(self) -> float:
        """The number that draws the next token."""
        return self.sampling.uniform(self.sample, len(self.tokens))

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def completion(self) -> Completion:
        return Completion(tuple(self.tokens), self.finish_reason, tuple(self.logprobs))

    def take(self, token: int, logits: Float[Tensor, "V"]) -> None:
        """The next token, and the logits that it was drawn from. It may finish the answer."""
        self.tokens.append(token)
        if self.sampling.logprobs:
            self.logprobs.append(float(logits.double().log_softmax(dim=-1)[token]))
        if token in self.sampling.stop_tokens:
            self.finish_reason = "stop"
        elif len(self.tokens) == self.sampling.max_new_tokens:
            self.finish_reason = "length"

    def tell(self) -> None:
        """Tell of the newest token."""
        if self.on_token is not None:
            self.on_token(self.sample, self.tokens[-1])
