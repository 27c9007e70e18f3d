from ${module} import correct, gave_a_number, load_environment


def said(text):
    return [{"role": "assistant", "content": text}]


def test_the_right_number_earns_the_reward():
    assert correct(said("42"), answer="42") == 1.0
    assert correct(said("40 + 2 is 42"), answer="42") == 1.0


def test_a_wrong_number_and_no_number_earn_nothing():
    assert correct(said("41"), answer="42") == 0.0
    assert correct(said("no idea"), answer="42") == 0.0
    assert correct([], answer="42") == 0.0


def test_the_form_is_rewarded_by_itself():
    assert gave_a_number(said("41")) == 1.0
    assert gave_a_number(said("no idea")) == 0.0


def test_the_environment_loads_with_the_sizes_asked_for():
    environment = load_environment(num_train=7, num_eval=3)
    assert len(environment.get_dataset()) == 7
    assert len(environment.get_eval_dataset()) == 3
    assert environment.get_dataset()[0]["prompt"][-1]["role"] == "user"


def test_no_training_question_is_held_out():
    environment = load_environment()
    assert not set(environment.get_dataset()["question"]) & set(environment.get_eval_dataset()["question"])
