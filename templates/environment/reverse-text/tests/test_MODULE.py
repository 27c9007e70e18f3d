import random
from itertools import chain

import pytest

from ${module} import add_noise, exact_match, load_environment, similarity


def messages(role, text):
    return [{"role": role, "content": text}]


def test_a_reversed_string_earns_the_full_reward():
    assert similarity(messages("user", "abcd"), messages("assistant", "dcba")) == 1.0
    assert exact_match(messages("user", "abcd"), messages("assistant", " dcba\n")) == 1.0


def test_half_of_the_letters_in_order_earn_half_of_the_reward():
    assert similarity(messages("user", "abcd"), messages("assistant", "dcxy")) == 0.5
    assert exact_match(messages("user", "abcd"), messages("assistant", "dcxy")) == 0.0


def test_an_empty_reply_earns_nothing():
    assert similarity(messages("user", "abcd"), []) == 0.0
    assert similarity(messages("user", "abcd"), messages("assistant", "")) == 0.0


def test_training_and_evaluation_strings_are_disjoint():
    environment = load_environment(num_train=300, num_eval=50)
    train = {row[0]["content"] for row in environment.get_dataset()["prompt"]}
    held_out = {row[0]["content"] for row in environment.get_eval_dataset()["prompt"]}
    assert len(train) == 300
    assert len(held_out) == 50
    assert not train & held_out


def test_the_seed_decides_the_strings():
    def strings(seed):
        return load_environment(num_train=20, num_eval=5, seed=seed).get_dataset()["answer"][:]

    assert strings(1) == strings(1)
    assert strings(1) != strings(2)


def test_noise_changes_training_answers_only():
    environment = load_environment(num_train=100, num_eval=20, answer_noise=0.5)
    pairs = [(row["prompt"][0]["content"], row["answer"]) for row in environment.get_dataset()]
    letters = list(chain.from_iterable(zip(text[::-1], answer, strict=True) for text, answer in pairs))
    changed = sum(right != shown for right, shown in letters) / len(letters)
    assert 0.35 < changed < 0.6
    assert all(row["answer"] == row["prompt"][0]["content"][::-1] for row in environment.get_eval_dataset())


def test_without_noise_an_answer_is_left_alone():
    assert add_noise("abcd", 0.0, random.Random(0)) == "abcd"


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="too few strings"):
        load_environment(num_train=100, min_length=1, max_length=1)
    with pytest.raises(ValueError, match="min_length"):
        load_environment(min_length=5, max_length=4)
    with pytest.raises(ValueError, match="probability"):
        load_environment(answer_noise=2.0)
