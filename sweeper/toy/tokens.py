"""The byte-level BPE tokenizer of the toy and its files."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from sweeper.toy.chat import END, PAD, SPECIAL_TOKENS, TEMPLATE

# Indentation stays whole, a word takes its one leading space with it, every digit stands alone.
PIECES = Regex(r" ?[A-Za-z]+|\d| ?[^\sA-Za-z\d]+|\n+| +(?= )| +|\s+")


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """The special tokens get the lowest ids, in the order of `SPECIAL_TOKENS`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(PIECES, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(  # type: ignore[no-untyped-call]
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(folder: Path, tokenizer: Tokenizer, max_tokens: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_tokens,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": [t for t in SPECIAL_TOKENS if t not in (END, PAD)],
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
