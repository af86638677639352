"""How the trained weights in the repository are made, and what they are compared with."""
