"""Makes a real Qwen3-architecture model, small enough to train on a laptop's CPU, with a byte-level tokenizer.

Nothing is downloaded: the weights are drawn from the model's own initialiser under a seed, and the tokenizer knows
the 256 bytes and a handful of chat markers. What is written is an ordinary Hugging Face model folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prime_cli.core.errors import BadInput
from prime_cli.models.folder import save_model_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
END_OF_MESSAGE = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, "<|im_start|>", END_OF_MESSAGE, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
# Text like any other, but one token each: nothing hides them, and a byte-level model need not spell them.
TOOL_CALL_MARKERS = ("<tool_call>", "</tool_call>")

# A message is its role's marker, its text, its tool calls, and one end marker: a conversation that goes on extends its
# own tokens. Tools are shown as signatures, `name(parameter)`: their schemas would be most of a small model's prompt.
CHAT_TEMPLATE = (
    "{% if tools %}<|system|>"
    "{% for tool in tools %}{% set function = tool.function or tool %}"
    "{{ function.name + '(' + ((function.parameters or {}).properties or {}) | join(', ') + ')' }}"
    "{{ '' if loop.last else '\n' }}{% endfor %}<|im_end|>{% endif %}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + (message['content'] or '') }}"
    "{% for call in message['tool_calls'] or [] %}{% set function = call.function or call %}"
    '{{ \'<tool_call>{"name": "\' + function.name + \'", "arguments": \' }}'
    "{{ function.arguments if function.arguments is string else function.arguments | tojson }}"
    "{{ '}</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True)
class TinyQwen3:
    """The shape of the model; the defaults give about 0.43 million parameters."""

    layers: int = 2
    hidden_size: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 384
    vocabulary: int = 272
    context_length: int = 1024


PRESETS: dict[str, TinyQwen3] = {
    "tiny-qwen3": TinyQwen3(),
    "small-qwen3": TinyQwen3(layers=4, hidden_size=256, heads=8, kv_heads=4, intermediate_size=768),
}


@dataclass(frozen=True)
class WrittenModel:
    """What `write_model` made."""

    path: Path
    preset: str
    parameters: int
    seed: int


def write_model(preset: str, folder: Path, *, seed: int = 0, force: bool = False) -> WrittenModel:
    """Write the model `preset` with random weights under `seed` into `folder`, wholly or not at all.

    Raises:
        BadInput: there is no such preset, or `folder` exists and `force` was not given.
    """
    if preset not in PRESETS:
        raise BadInput(f"unknown model preset {preset!r}", hint=f"presets: {', '.join(PRESETS)}")
    if folder.exists() and not force:
        raise BadInput(f"{folder} exists already", hint="choose another folder, or add --force to replace it")
    if force and folder.exists() and not (folder / "config.json").is_file() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not a model folder, so --force does not replace it", hint="choose another folder")

    import torch
    from transformers import GenerationConfig, Qwen3ForCausalLM

    tokenizer = byte_tokenizer(PRESETS[preset])
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(_qwen3_config(PRESETS[preset], tokenizer))
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.convert_tokens_to_ids(END_OF_MESSAGE), pad_token_id=tokenizer.pad_token_id
    )
    save_model_folder(model, tokenizer, folder)
    return WrittenModel(folder, preset, sum(p.numel() for p in model.parameters()), seed)


def byte_tokenizer(shape: TinyQwen3) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the 256 bytes and the chat markers, with the chat template set."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in TOOL_CALL_MARKERS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_MESSAGE,
        pad_token=END_OF_TEXT,
        chat_template=CHAT_TEMPLATE,
        model_max_length=shape.context_length,
        clean_up_tokenization_spaces=False,
    )


def _qwen3_config(shape: TinyQwen3, tokenizer: PreTrainedTokenizerFast) -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context_length,
        tie_word_embeddings=True,
        initializer_range=0.02,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(END_OF_MESSAGE),
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
