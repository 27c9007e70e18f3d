"""The staleness gate."""

from prime_cli.rl.orchestrator.gate import StalenessGate


def opened_under(gate: StalenessGate, version: int) -> int:
    count = 0
    while gate.may_open(version):
        gate.opened()
        count += 1
    return count


def test_a_synchronous_run_opens_one_batch_per_policy() -> None:
    gate = StalenessGate(groups_per_batch=4, max_off_policy_steps=0, max_steps=3)
    assert [opened_under(gate, version) for version in (0, 1, 2, 3)] == [4, 4, 4, 0]


def test_one_step_off_policy_lets_one_more_batch_be_generated() -> None:
    gate = StalenessGate(groups_per_batch=4, max_off_policy_steps=1, max_steps=10)
    assert opened_under(gate, 0) == 8
    assert opened_under(gate, 1) == 4


def test_no_group_is_opened_that_no_batch_would_take() -> None:
    gate = StalenessGate(groups_per_batch=4, max_off_policy_steps=5, max_steps=2)
    assert opened_under(gate, 0) == 8
    assert opened_under(gate, 2) == 0


def test_a_dropped_group_makes_room_for_another() -> None:
    gate = StalenessGate(groups_per_batch=2, max_off_policy_steps=0, max_steps=5)
    assert opened_under(gate, 0) == 2
    gate.dropped()
    assert opened_under(gate, 0) == 1


def test_staleness_counts_versions_between_sampling_and_training() -> None:
    gate = StalenessGate(groups_per_batch=2, max_off_policy_steps=1, max_steps=5)
    assert gate.staleness(version=0, step=1) == 0
    assert not gate.is_too_old(version=0, step=2)
    assert gate.is_too_old(version=0, step=3)
