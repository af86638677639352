"""`make demo`: questions to SmolLM2, and its answers."""

from collections.abc import Callable

from demo_answers import Answer, Conversation, Sampling
from rich.text import Text

from assignment.provided.models.smollm2 import load_smollm2


class Chat(Conversation):
    """SmolLM2 remembers what was said: each turn feeds only what is new."""

    name = "SmolLM2"
    capacity = 2048  # 94 MB of keys and values
    prompt = "Explain to a student what a cache is, and why computers have several of them."
    temperature = 0.0
    invitation = "you"

    def __init__(self):
        super().__init__(*load_smollm2())
        self.unfed: list[int] = []  # generate never feeds the last token of an answer

    def opening(self, text: str, typed: bool) -> Text:
        asked = () if typed else (("you: ", "bold"), text, "\n")
        return Text.assemble(*asked, ("SmolLM2: ", "bold"))

    def ask(self, text: str, sampling: Sampling, show: Callable[[str], None]) -> Answer:
        prompt = self._prompt(text)
        room = self.capacity - int(self.session.lengths)
        if len(prompt) + sampling.uniforms.shape[1] > room:
            self.forget()
            self.unfed = []
            prompt = self._prompt(text)
        answer = self.answer(prompt, sampling, show)
        last, stop = answer.tokens[-1:], self.tokenizer.stop_tokens
        self.unfed = last if last[0] in stop else [*last, *stop]
        return answer

    def _prompt(self, question: str) -> list[int]:
        if self.unfed:
            return self.unfed + self.tokenizer.chat_again(question)
        return self.tokenizer.chat(question)
