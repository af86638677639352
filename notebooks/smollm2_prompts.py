"""What smollm2_speculative.py asks SmolLM2: answers that copy, and answers that do not.

So small a model does not always do what it is asked; what it answers is copied all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTICE = """\
The small ferry that crosses the sound will not sail between Monday and Thursday, because its \
engine is being repaired in the harbour of Ostvik. Passengers who hold a ticket for one of these \
days may take the large ferry, which leaves from the north quay at eight in the morning and at \
five in the afternoon, or get their money back at the office. Bicycles travel free of charge this \
week. Cars must be on the quay twenty minutes before the ferry leaves."""

LETTER = """\
Dear Mrs Holm,

Thank you for your order of the third of May. The two blue chairs and the round table that you \
chose are ready and will be delivered to your house on Friday morning between nine and eleven. \
Please make sure that somebody is at home to recieve them, because the driver cannot leave the \
furniture in front of the door. If Friday does not suit you, call our office before Wednesday \
evening.

Yours sincerely,
The workshop"""

PROGRAM = """\
def greet_all(names, greeting):
    for name in names:
        message = greeting + ', ' + name + '!'
        print(message)
        log_file.write(message + '\\n')
    print('All', len(names), 'people were greeted.')


if __name__ == '__main__':
    names = ['Anna', 'Tomas', 'Ines']
    greet_all(names, 'Good morning')"""

REPORT = """\
The district has five stations. Only stations with a waiting room are listed.

| station | city | opened | platforms | passengers a day |
|---|---|---|---|---|
| North Gate | Ostvik | 1901 | 4 | 12,400 |
| Harbour | Ostvik | 1954 | 2 | 3,150 |
| Old Mill | Lindal | 1888 | 3 | 7,020 |
| Market Square | Lindal | 1972 | 6 | 21,800 |
| West Hill | Sundby | 2003 | 2 | 1,960 |"""

MINUTES = """\
Anna Berg opened the meeting and asked for the figures of the spring. Tomas Lund said that the \
library lent 4,200 books in March and 5,100 in April. Ines Moe said that the reading room was \
closed for nine days because of a broken window. Anna Berg asked when the new shelves would come. \
Tomas Lund said that the new shelves would come on the second of June."""


@dataclass(frozen=True)
class Prompt:
    """kind: "copy" where most of the answer stands in the prompt, "open" where it does not."""

    name: str
    kind: str
    text: str


def python(program: str) -> str:
    return f"\n\n```python\n{program}\n```"


PROMPTS = [
    Prompt("repeat a notice", "copy", f"Write this notice again, word for word:\n\n{NOTICE}"),
    Prompt("fix a typo in a letter", "copy", f"Fix the typo in this letter:\n\n{LETTER}"),
    Prompt(
        "fix a typo in a program",
        "copy",
        "Fix the typo in this program and write it again, word for word:"
        + python(PROGRAM.replace("print(message)", "pirnt(message)")),
    ),
    Prompt(
        "rename a variable",
        "copy",
        "Write this program again, word for word, but with `message` renamed to `text`:"
        + python(PROGRAM),
    ),
    Prompt("extract a table", "copy", f"Copy the table of this report.\n\n{REPORT}"),
    Prompt(
        "make a list of sentences",
        "copy",
        f"Put all the sentences of this text into a numbered list:\n\n{MINUTES}",
    ),
    Prompt("tell a story", "open", "Tell a short story about a lighthouse keeper and a whale."),
    Prompt("explain", "open", "Explain in a few sentences why the sky is blue."),
    Prompt("give advice", "open", "How can I learn to play the guitar at home? Give me advice."),
]
