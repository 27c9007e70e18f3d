"""The staleness gate."""

from prime_cli.rl.orchestrator.gate import StalenessGate


def opened_under(gate: StalenessGate, version: int, *, step: int, outstanding: int = 0) -> int:
    """Open groups of one rollout while the gate lets them; return how many."""
    count = 0
    while gate.may_open(step=step, outstanding=outstanding + count, version=version):
        count += 1
    return count


def test_a_synchronous_run_opens_one_batch_per_policy() -> None:
    gate = StalenessGate(batch_size=4, max_off_policy_steps=0, max_steps=3)
    assert [opened_under(gate, version, step=version + 1) for version in (0, 1, 2, 3)] == [4, 4, 4, 0]
    assert opened_under(gate, 0, step=2) == 0


def test_one_step_off_policy_lets_one_more_batch_be_generated() -> None:
    gate = StalenessGate(batch_size=4, max_off_policy_steps=1, max_steps=10)
    assert opened_under(gate, 0, step=1) == 8
    assert opened_under(gate, 0, step=2, outstanding=4) == 0
    assert opened_under(gate, 1, step=2, outstanding=4) == 4


def test_however_old_rollouts_may_be_only_one_batch_is_collected_ahead() -> None:
    gate = StalenessGate(batch_size=4, max_off_policy_steps=8, max_steps=20)
    assert opened_under(gate, 0, step=2) > 0
    assert opened_under(gate, 0, step=3) == 0
    assert gate.may_ship(step=2, version=0)
    assert not gate.may_ship(step=3, version=0)
    assert gate.may_ship(step=3, version=1)


def test_no_group_is_opened_that_no_batch_would_take() -> None:
    gate = StalenessGate(batch_size=4, max_off_policy_steps=5, max_steps=2)
    assert opened_under(gate, 0, step=1) == 8
    assert opened_under(gate, 2, step=3) == 0


def test_staleness_counts_versions_between_sampling_and_training() -> None:
    gate = StalenessGate(batch_size=2, max_off_policy_steps=1, max_steps=5)
    assert gate.staleness(version=0, step=1) == 0
    assert not gate.is_too_old(version=0, step=2)
    assert gate.is_too_old(version=0, step=3)
