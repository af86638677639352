"""`make heads`: why not simply fewer heads? Trains toy models that keep as much a token in as many
ways, and turns a trained MHA model into GQA.

recipe      the models, and how they are trained
measure     nats a token and questions answered, with intervals
"""
