"""Samples in the store: a batch becomes one blob, and a row says where in it each sample lies.

Each sample is compressed by itself, so that a page of a long list reads only its own bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import case, func, literal, select, tuple_
from sqlalchemy.orm import Session

from hub_server.blobs import BlobStore
from hub_server.database import Database, now
from hub_server.evaluations.samples import Sample
from hub_server.evaluations.tables import Evaluation, EvaluationSample, SampleBatch
from prime_cli.hub.models import EvaluationStatus

_COMPRESSION_LEVEL = 4
_IDENTITIES_PER_QUERY = 500  # databases bound the number of values in one statement


@dataclass(frozen=True)
class Added:
    """What became of a batch: new ones, those that were there, and those that were there with another content."""

    added: int
    repeated: int
    differing: int
    total: int


@dataclass(frozen=True)
class RewardCounts:
    """How many rollouts were given a reward in each of equal bins from `low` to `high`."""

    low: float
    high: float
    counts: list[int]


@dataclass(frozen=True)
class Place:
    """Where the compressed bytes of a sample lie."""

    sha256: str
    offset: int
    length: int


def add_samples(database: Database, blobs: BlobStore, evaluation_id: str, samples: Sequence[Sample]) -> Added:
    """Add what is new of `samples`; a sample that is there stays as it is.

    The bytes are stored before the transaction, which is short; of two clients with the same samples one adds them.
    """
    with database.read() as session:
        known = _known(session, evaluation_id, samples)
    fresh = [sample for sample in samples if sample.identity not in known]
    sha256, places = _store(blobs, fresh) if fresh else ("", [])
    with database.write(f"evaluation {evaluation_id}") as session:
        evaluation = session.get_one(Evaluation, evaluation_id)
        appeared = _known(session, evaluation_id, fresh)
        if len(appeared) < len(fresh):
            batch = _batch(session, evaluation_id, sha256)
            for sample, (offset, length) in zip(fresh, places, strict=True):
                if sample.identity not in appeared:
                    session.add(_row(sample, evaluation_id, batch.id, offset, length))
                    _count(evaluation, sample)
        if evaluation.status == EvaluationStatus.PENDING:
            evaluation.status = EvaluationStatus.RUNNING
        evaluation.updated_at = now()
        total = evaluation.total_samples
    known |= appeared
    differing = sum(known.get(sample.identity, sample.content_key) != sample.content_key for sample in samples)
    added = len(fresh) - len(appeared)
    return Added(added, len(samples) - added - differing, differing, total)


def list_samples(session: Session, evaluation_id: str, *, offset: int, limit: int) -> list[EvaluationSample]:
    """Return rows of samples in order: by example, then rollout."""
    rows = select(EvaluationSample).where(EvaluationSample.evaluation_id == evaluation_id)
    ordered = rows.order_by(EvaluationSample.sort_key, EvaluationSample.identity)
    return list(session.scalars(ordered.offset(offset).limit(limit)))


def find_sample(session: Session, evaluation_id: str, identity: str) -> EvaluationSample | None:
    """Return the row of one sample, None when there is none."""
    return session.get(EvaluationSample, (evaluation_id, identity))


def neighbours(session: Session, row: EvaluationSample) -> tuple[EvaluationSample | None, EvaluationSample | None]:
    """Return the samples before and after this one in the order of lists."""
    rows = select(EvaluationSample).where(EvaluationSample.evaluation_id == row.evaluation_id).limit(1)
    place = tuple_(EvaluationSample.sort_key, EvaluationSample.identity)
    here = tuple_(literal(row.sort_key), literal(row.identity))
    before = rows.where(place < here).order_by(EvaluationSample.sort_key.desc(), EvaluationSample.identity.desc())
    after = rows.where(place > here).order_by(EvaluationSample.sort_key, EvaluationSample.identity)
    return session.scalar(before), session.scalar(after)


def count_rewards(session: Session, evaluation_id: str, *, bins: int) -> RewardCounts | None:
    """Return how the rewards of the samples that count are spread; None while all of them are the same."""
    reward = EvaluationSample.reward
    counted = (EvaluationSample.evaluation_id == evaluation_id, EvaluationSample.failed.is_(False))
    low, high = session.execute(select(func.min(reward), func.max(reward)).where(*counted)).one()
    if low is None or high is None or low == high:
        return None
    edges = [low + (high - low) * number / bins for number in range(1, bins)]
    under = [func.sum(case((reward < edge, 1), else_=0)) for edge in edges]
    up_to = [*session.execute(select(*under, func.count(reward)).where(*counted)).one()]
    return RewardCounts(low, high, [there - before for before, there in zip([0, *up_to], up_to, strict=False)])


def places_of(session: Session, rows: Sequence[EvaluationSample]) -> list[Place]:
    """Return where the bytes of these samples lie."""
    batches = {row.batch_id for row in rows}
    found = session.scalars(select(SampleBatch).where(SampleBatch.id.in_(batches)))
    names = {batch.id: batch.sha256 for batch in found}
    return [Place(names[row.batch_id], row.offset, row.length) for row in rows]


def read_sample(blobs: BlobStore, place: Place) -> bytes:
    """Return the JSON text of a sample."""
    return zlib.decompress(blobs.read(place.sha256, place.offset, place.length))


def _known(session: Session, evaluation_id: str, samples: Sequence[Sample]) -> dict[str, str]:
    """Return the content key of each of these samples that is there, by identity."""
    known: dict[str, str] = {}
    for part in _parts([sample.identity for sample in samples]):
        rows = select(EvaluationSample.identity, EvaluationSample.content_key).where(
            EvaluationSample.evaluation_id == evaluation_id, EvaluationSample.identity.in_(part)
        )
        known.update((identity, content_key) for identity, content_key in session.execute(rows))
    return known


def _parts(identities: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(identities), _IDENTITIES_PER_QUERY):
        yield identities[start : start + _IDENTITIES_PER_QUERY]


def _store(blobs: BlobStore, samples: Sequence[Sample]) -> tuple[str, list[tuple[int, int]]]:
    """Store samples as one blob; return its hash, and offset and length of each."""
    places = []
    with blobs.writer() as writer:
        for sample in samples:
            packed = zlib.compress(sample.data, _COMPRESSION_LEVEL)
            places.append((writer.size, len(packed)))
            writer.write(packed)
        writer.keep()
        return writer.sha256, places


def _batch(session: Session, evaluation_id: str, sha256: str) -> SampleBatch:
    """Return the row of a blob. It can be there already, when others added a part of the same samples before."""
    where = (SampleBatch.evaluation_id == evaluation_id, SampleBatch.sha256 == sha256)
    batch = session.scalar(select(SampleBatch).where(*where))
    if batch is None:
        batch = SampleBatch(evaluation_id=evaluation_id, sha256=sha256)
        session.add(batch)
        session.flush()
    return batch


def _row(sample: Sample, evaluation_id: str, batch_id: str, offset: int, length: int) -> EvaluationSample:
    return EvaluationSample(
        evaluation_id=evaluation_id,
        identity=sample.identity,
        sort_key=sample.sort_key,
        content_key=sample.content_key,
        example_id=sample.example_id,
        rollout_number=sample.rollout_number,
        reward=sample.reward,
        failed=sample.failed,
        batch_id=batch_id,
        offset=offset,
        length=length,
    )


def _count(evaluation: Evaluation, sample: Sample) -> None:
    evaluation.total_samples += 1
    if sample.reward is not None:
        evaluation.scored_samples += 1
        evaluation.reward_sum += sample.reward
