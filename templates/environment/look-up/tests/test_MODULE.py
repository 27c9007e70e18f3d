import asyncio
import json
import random

import pytest

from ${module} import arrived, call_of, careless_episode, follow, load_environment, look, looked_up

TABLE = "bcda"  # a -> b -> c -> d -> a
INFO = {"start": "a", "table": TABLE, "hops": 2}


def said(role, *texts):
    return [{"role": role, "content": text} for text in texts]


def test_the_tool_says_where_a_letter_leads():
    assert [look(key, TABLE) for key in ("a", "d", "z", "", "ab")] == ["b", "a", "?", "?", "?"]
    assert follow("a", TABLE, 2) == "c"


def test_the_reward_is_for_the_last_letter_of_the_chain():
    assert arrived(said("assistant", " c\n"), answer="c") == 1.0
    assert arrived(said("assistant", "c", "b"), answer="c") == 0.0
    assert arrived(said("tool", "c"), answer="c") == 0.0
    assert arrived([], answer="c") == 0.0


def test_the_metric_counts_how_far_the_tool_was_followed():
    assert looked_up(said("tool", "b", "c"), info=INFO) == 1.0
    assert looked_up(said("tool", "b", "d"), info=INFO) == 0.5
    assert looked_up(said("tool", "c", "b"), info=INFO) == 0.0


def test_care_decides_how_often_a_demonstration_arrives():
    def share(care):
        rng = random.Random(0)
        episodes = [careless_episode("a", TABLE, 2, care, rng) for _ in range(500)]
        return sum(arrived(episode, answer="c") for episode in episodes) / 500

    assert share(1.0) == 1.0
    assert share(0.0) < 0.4 < share(0.7) < 0.7


def test_a_careful_demonstration_calls_looks_and_answers():
    episode = careless_episode("a", TABLE, 2, 1.0, random.Random(0))
    expected = [("assistant", call_of("a")), ("tool", "b"), ("assistant", call_of("b")), ("tool", "c"), ("assistant", "c")]
    assert [(message["role"], message["content"]) for message in episode] == expected


def test_the_table_reaches_the_tool_and_is_hidden_from_the_model():
    environment = load_environment()
    (tool,) = environment.tool_defs
    assert list(tool.parameters["properties"]) == ["key"]
    assert environment.update_tool_args("look", {"key": "a"}, [], {"info": INFO}) == {"key": "a", "table": TABLE}
    answer = asyncio.run(environment.call_tool("look", {"key": "a", "table": TABLE}, "1"))
    assert answer.content == "b"


def test_every_question_has_its_own_table_and_a_chain_without_circles():
    environment = load_environment(num_train=50, num_eval=20, hops=2)
    rows = list(environment.get_dataset()) + list(environment.get_eval_dataset())
    assert len({row["info"]["table"] for row in rows}) == 70
    for row in rows:
        info = row["info"]
        chain = [follow(info["start"], info["table"], step) for step in range(3)]
        assert len(set(chain)) == 3
        assert row["answer"] == chain[-1]


def test_demonstrations_come_with_the_tool_that_they_call():
    row = load_environment(num_demonstrations=5).get_dataset()[0]
    assert [tool["name"] for tool in json.loads(row["tools"])] == ["look"]
    assert row["demonstration"][-1]["role"] == "assistant"
    assert "demonstration" not in load_environment(num_train=5).get_dataset().column_names


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="num_letters"):
        load_environment(num_letters=27)
    with pytest.raises(ValueError, match="hops"):
        load_environment(hops=0)
    with pytest.raises(ValueError, match="probability"):
        load_environment(care=2.0)
