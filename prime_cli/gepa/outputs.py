"""What was found, as the rows and keys that verifiers' own tools write (its schema `verifiers.gepa.v1`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from prime_cli.gepa.prompts import diff, sha256_of
from prime_cli.gepa.search import Found

_SCHEMA = "verifiers.gepa.v1"
_COMMON = {"schema_version": _SCHEMA, "eval_kind": "gepa"}
_TARGET = "system_prompt"


def candidate_rows(found: Found) -> Iterator[dict[str, Any]]:
    """Yield the lines of results.jsonl."""
    initial = found.prompts[0]
    for index, (prompt, score) in enumerate(zip(found.prompts, found.scores, strict=True)):
        subscores = found.val_scores[index]
        info = {
            **_COMMON,
            "sample_type": "gepa_candidate",
            "optimization_target": _TARGET,
            "candidate_idx": index,
            "is_best": index == found.best,
            "system_prompt": prompt,
            "system_prompt_sha256": sha256_of(prompt),
            "diff_from_initial": diff(initial, prompt),
            "parent_candidate_idxs": found.parents[index],
            "val_subscores": {str(row): value for row, value in enumerate(subscores)},
            "num_val_examples": len(subscores),
            "discovery_metric_calls": found.discovered_after[index],
        }
        yield {"example_id": index, "reward": score, "score": score, "info": info}


def frontier_rows(found: Found) -> Iterator[dict[str, Any]]:
    """Yield the lines of pareto_frontier.jsonl."""
    for row, scores in enumerate(zip(*found.val_scores, strict=True)):
        best = max(scores)
        candidates = [
            {"candidate_idx": index, "system_prompt_sha256": sha256_of(found.prompts[index]), "score": score}
            for index, score in enumerate(scores)
            if score == best
        ]
        yield {
            "schema_version": _SCHEMA,
            "valset_row": row,
            "best_score": best,
            "num_best_candidates": len(candidates),
            "best_candidates": candidates,
        }


def metadata(
    found: Found, *, env_id: str, model: str, reflection_model: str, config: dict[str, Any], complete: bool
) -> dict[str, Any]:
    """Return metadata.json."""
    best = found.best
    return {
        **_COMMON,
        "framework": "verifiers",
        "optimizer": "gepa",
        "optimization_target": _TARGET,
        "env_id": env_id,
        "model": model,
        "reflection_model": reflection_model,
        "num_candidates": len(found.prompts),
        "best_idx": best,
        "best_score": found.scores[best],
        "total_metric_calls": found.calls,
        "initial_prompt_sha256": sha256_of(found.prompts[0]),
        "best_prompt_sha256": sha256_of(found.prompts[best]),
        "system_prompt_path": "system_prompt.txt",
        "results_path": "results.jsonl",
        "completed_at": time.strftime("%Y-%m-%dT%H:%M:%S%z") if complete else None,
        "config": config,
    }
