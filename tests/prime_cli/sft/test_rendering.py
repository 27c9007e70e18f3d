"""What of a conversation is learnt, under templates of several kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import ConfigError
from prime_cli.models.folder import load_tokenizer
from prime_cli.sft.conversations import Conversation
from prime_cli.sft.rendering import Demonstration, Rendered, render

USER, ASSISTANT = {"role": "user", "content": "ab"}, {"role": "assistant", "content": "ba"}
MARKED = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '<|im_end|>' }}\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<assistant>{% endif %}"
# As Qwen3's: what an earlier reply thought is taken out once the user has spoken again.
FORGETS_THOUGHTS = (
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.thought and not loop.index0 < messages | length - 1 %}({{ m.thought }}){% endif %}"
    "{{ m.content }}<|im_end|>{% endfor %}" + PROMPT
)


@pytest.fixture
def tokenizer(tiny_model: Path) -> Any:
    return load_tokenizer(tiny_model)


def learnt(tokenizer: Any, demonstration: Demonstration) -> str:
    pairs = zip(demonstration.token_ids, demonstration.learnt, strict=True)
    return str(tokenizer.decode([token for token, flag in pairs if flag]))


def rendered(tokenizer: Any, *messages: dict[str, str], seq_len: int = 99, **changes: Any) -> Rendered:
    return render([Conversation(list(messages))], tokenizer, seq_len=seq_len, **changes)


def test_only_the_assistants_tokens_and_end_markers_are_learnt(tokenizer: Any) -> None:
    (demonstration,) = rendered(tokenizer, USER, ASSISTANT, USER, ASSISTANT).demonstrations
    assert learnt(tokenizer, demonstration) == "ba<|im_end|>ba<|im_end|>"
    assert tokenizer.decode(demonstration.token_ids).count("<|user|>ab") == 2
    sample = demonstration.sample()
    assert sample.ce_weights == [float(flag) for flag in demonstration.learnt]
    assert not any(sample.rl_weights)


def test_what_a_server_would_render_before_the_reply_is_what_stands_before_it_here(tokenizer: Any) -> None:
    (demonstration,) = rendered(tokenizer, USER, ASSISTANT).demonstrations
    prompt = tokenizer.apply_chat_template([USER], add_generation_prompt=True, return_dict=False)
    assert demonstration.token_ids.tolist()[: len(prompt)] == prompt
    assert list(demonstration.learnt[: len(prompt)]) == [0] * len(prompt)
    assert demonstration.learnt[len(prompt)] == 1


def test_other_roles_are_learnt_when_asked_for(tokenizer: Any) -> None:
    (demonstration,) = rendered(tokenizer, USER, ASSISTANT, roles=frozenset({"user", "assistant"})).demonstrations
    text = learnt(tokenizer, demonstration)
    assert text.endswith("ba<|im_end|>")
    assert "ab" in text
    assert demonstration.learnt[0] == 0, "nothing predicts the first token"


def test_the_line_break_behind_the_end_marker_is_nobodys_word(tokenizer: Any) -> None:
    tokenizer.chat_template = MARKED + PROMPT
    (demonstration,) = rendered(tokenizer, USER, ASSISTANT, USER, ASSISTANT).demonstrations
    assert learnt(tokenizer, demonstration) == "ba<|im_end|>ba<|im_end|>"


def test_a_template_that_rewrites_history_gives_one_demonstration_for_each_view_of_it(tokenizer: Any) -> None:
    tokenizer.chat_template = FORGETS_THOUGHTS
    first, second = ASSISTANT | {"thought": "c"}, ASSISTANT | {"thought": "d"}
    one, two = rendered(tokenizer, USER, first, USER, second).demonstrations
    assert learnt(tokenizer, one) == "(c)ba<|im_end|>"
    assert learnt(tokenizer, two) == "(d)ba<|im_end|>", "the reply of the first turn is not learnt without its thought"
    assert "(c)" not in tokenizer.decode(two.token_ids)
    (plain,) = rendered(tokenizer, USER, ASSISTANT, USER, ASSISTANT).demonstrations
    assert learnt(tokenizer, plain) == "ba<|im_end|>ba<|im_end|>"


def test_a_template_under_which_a_reply_cannot_be_told_from_its_prompt_is_refused(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(ConfigError, match="rewrites what stands before the message 2"):
        rendered(tokenizer, USER, ASSISTANT)


def test_what_a_template_refuses_is_said_with_the_roles(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ConfigError, match="of the roles user: roles must alternate"):
        rendered(tokenizer, USER, ASSISTANT)


def test_tools_reach_the_template(tokenizer: Any) -> None:
    tokenizer.chat_template = "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}" + MARKED + PROMPT
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    (demonstration,) = render([Conversation([USER, ASSISTANT], [tool])], tokenizer, seq_len=99).demonstrations
    assert tokenizer.decode(demonstration.token_ids).startswith("[add]")


def test_what_the_sequence_length_cuts_is_counted_and_what_is_left_without_a_reply_is_left_out(tokenizer: Any) -> None:
    whole = rendered(tokenizer, USER, ASSISTANT)
    (demonstration,) = whole.demonstrations
    prompt = bytes(demonstration.learnt).index(1)
    assert (whole.truncated, whole.left_out) == (0, 0)
    cut = rendered(tokenizer, USER, ASSISTANT, seq_len=prompt + 1)
    assert (len(cut.demonstrations[0].token_ids), cut.truncated, cut.left_out) == (prompt + 1, 1, 0)
    nothing = rendered(tokenizer, USER, ASSISTANT, seq_len=prompt)
    assert (nothing.demonstrations, nothing.truncated, nothing.left_out) == ([], 1, 1)
