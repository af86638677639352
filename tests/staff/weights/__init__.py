"""`make weights`: trains the toy models, measures them, writes their cards.

recipe      what each model is and how it is trained
measure     perplexity, acceptance, violations, with intervals
ngram       the baseline
card        a model's page, from its figures
"""
