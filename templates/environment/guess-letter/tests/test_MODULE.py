import asyncio
import random

import pytest

from ${module} import AFTER, BEFORE, QUESTION, found, fouls, hint, load_environment, random_game

LETTERS = "abcdefg"


def said(role, *texts):
    return [{"role": role, "content": text} for text in texts]


def test_the_hint_says_where_the_hidden_letter_stands():
    assert hint("f", "c", LETTERS) == BEFORE
    assert hint("c", "f", LETTERS) == AFTER


def test_what_is_no_letter_of_the_game_is_asked_again():
    for guess in ("", "hh", "z", "7"):
        assert hint(guess, "c", LETTERS) == QUESTION
    assert fouls(said("user", QUESTION, BEFORE, QUESTION)) == 2.0


def test_the_reward_is_for_naming_the_letter():
    assert found(said("assistant", "a", " c "), answer="c") == 1.0
    assert found(said("assistant", "a", "b"), answer="c") == 0.0
    assert found(said("user", "c"), answer="c") == 0.0


def test_halving_finds_every_letter_within_three_guesses():
    for secret in LETTERS:
        low, high, guesses = 0, len(LETTERS) - 1, 0
        answer = ""
        while answer != secret:
            middle = (low + high) // 2
            answer, guesses = LETTERS[middle], guesses + 1
            low, high = (low, middle - 1) if hint(answer, secret, LETTERS) == BEFORE else (middle + 1, high)
        assert guesses <= 3


@pytest.mark.parametrize(("care", "wins"), [(0.0, 0.37), (0.5, 0.52), (1.0, 0.68)])
def test_a_random_player_wins_more_often_the_more_hints_it_heeds(care, wins):
    rng = random.Random(0)
    games = [(secret, random_game(secret, LETTERS, 3, care, rng)) for secret in LETTERS * 200]
    hits = [found(game, answer=secret) for secret, game in games]
    assert abs(sum(hits) / len(hits) - wins) < 0.04
    assert all(game[-1]["role"] == "assistant" and len(game) <= 5 for _, game in games)


def test_training_games_carry_demonstrations_only_when_asked_for():
    plain = load_environment()
    assert plain.get_dataset()["answer"][:] == list(LETTERS)
    assert "demonstration" not in plain.get_dataset().column_names
    shown = load_environment(num_demonstrations=30)
    assert len(shown.get_dataset()) == 30
    assert shown.get_dataset()[0]["demonstration"][0]["role"] == "assistant"
    assert shown.get_eval_dataset()["answer"][:] == list(LETTERS)


def test_a_game_ends_with_a_hit_and_answers_a_miss():
    environment = load_environment()

    def state(*guesses):
        return {"answer": "c", "trajectory": [{"completion": said("assistant", guess)} for guess in guesses]}

    assert not asyncio.run(environment.letter_found(state()))
    assert not asyncio.run(environment.letter_found(state("c", "d")))
    assert asyncio.run(environment.letter_found(state("d", "c")))
    (answer,) = asyncio.run(environment.env_response(said("assistant", "d"), state("d")))
    assert (answer["role"], answer["content"]) == ("user", BEFORE)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="num_letters"):
        load_environment(num_letters=27)
    with pytest.raises(ValueError, match="guesses"):
        load_environment(guesses=0)
    with pytest.raises(ValueError, match="probability"):
        load_environment(care=2)
