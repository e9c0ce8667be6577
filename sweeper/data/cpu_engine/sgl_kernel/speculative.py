"""The one function that SGLang's NGRAM worker imports from here by another name."""

from .tree import reconstruct_indices_from_tree_mask_cpu as reconstruct_indices_from_tree_mask

__all__ = ["reconstruct_indices_from_tree_mask"]
