"""`make weights`: trains the toy models, measures them, writes their cards.

recipe      what each model is and how it is trained
measure     perplexity, acceptance, violations, with intervals
ngram       the baseline
card        a model's page, from its figures

For what guesses the target's tokens, called by name (`make weights ARGS=medusa`):

medusa, eagle   their training, figures and pages
rounds          decoding of test stories: tokens a round
guess_card      what their pages share
"""
