"""The published SDK prime-evals, unchanged, against this hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.published_tools import installed, run
from tests.running_hub import Push, RunningHub, answer

NewUser = Callable[[], tuple[str, str]]
FLOW = """
import json, sys
from prime_evals import APIClient, EvalsClient
from prime_evals.models import Evaluation, EvaluationListResponse, SamplesResponse

slug = sys.argv[1]
client = EvalsClient(APIClient())
begun = client.create_evaluation(
    name="by the SDK", environments=[{"slug": f"{slug}/sums-by-the-sdk"}, {"slug": f"{slug}/no-such"}], model_name="m",
    dataset="sums", framework="verifiers", task_type="math", tags=["a"], metadata={"num_examples": 9},
)
one = begun["evaluation_id"]
samples = [
    {"example_id": n, "task": "t", "prompt": [{"role": "user", "content": "?"}], "reward": n / 10, "info": {"n": n}}
    for n in range(9)
]
for _ in range(2):
    told = client.push_samples(one, samples, max_payload_bytes=400)
    assert told == {"samples_pushed": 9, "samples_skipped": 0}, told
client.update_evaluation(one, description="later")
ended = client.finalize_evaluation(one, metrics={"reward": 0.4})
read = Evaluation(**client.get_evaluation(one))
page = SamplesResponse(**client.get_samples(one, page=2, limit=4))
listed = EvaluationListResponse(**client.list_evaluations(env_name="sums-by-the-sdk"))
print(json.dumps({
    "status": read.status, "tags": read.tags, "description": read.description, "metrics": read.metrics,
    "total": page.total, "examples": [sample.example_id for sample in page.samples], "more": page.has_more,
    "ids": [row.id for row in listed.evaluations], "evaluation": one, "url": ended["viewer_url"],
}))
"""


@pytest.fixture(scope="session")
def python(tool_cache: Path, tools: Path) -> Path:
    """An interpreter with nothing but prime-evals."""
    return installed(tool_cache, "prime-evals==0.2.4", uv=tools / "uv") / "python"


def test_the_published_sdk_begins_pushes_completes_and_reads(
    hub: RunningHub, new_user: NewUser, python: Path, tmp_path: Path
) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        assert Push(client, "sums-by-the-sdk", "0.1.0", visibility="PRIVATE").run().is_success
    login = {"HOME": str(tmp_path), "PRIME_API_KEY": key, "PRIME_API_BASE_URL": hub.url}
    done = run(python, "-c", FLOW, slug, **login)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["status"], told["tags"], told["description"]) == ("COMPLETED", ["a"], "later")
    assert told["metrics"] == {"reward": 0.4}
    assert (told["total"], told["examples"], told["more"]) == (9, [4, 5, 6, 7], True)
    assert told["ids"] == [told["evaluation"]]
    assert told["url"] == f"{hub.url}/dashboard/evaluations/{told['evaluation']}"
    with hub.client(key) as client:
        assert answer(client.get(f"/evaluations/{told['evaluation']}"))["environment_names"] == [
            f"{slug}/sums-by-the-sdk"
        ]
