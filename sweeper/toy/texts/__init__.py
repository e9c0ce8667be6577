"""What the corpus is made of: one module per kind of text, each from a seed."""
