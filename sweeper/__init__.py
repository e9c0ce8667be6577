"""Sweeper: which speculative-decoding configuration makes a model faster under SGLang."""

__version__ = "0.1.0"
