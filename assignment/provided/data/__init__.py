"""Data that the course makes itself, the same on every machine for the same seed.

stories      short stories in English with exact probabilities, and a checker
corpus       the stories by split, for training and for measuring
tokenizer    the stories' tokenizer: a word is a token
exact        the grammar's law of the next token
recall       associative recall, a task that asks for memory
traces       requests to a server: when they come, how long they are, what they share
events       a server's log of what happened to requests
"""
