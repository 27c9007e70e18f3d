"""The refusals of the API as a table: who asks, for what, with what, and the status and words of the answer.

Names in braces are the parts that `test_refusals.py` prepares.
"""

from __future__ import annotations

import base64
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from tests.hub_server.test_login_challenge import pem_of

API = "/api/v1"
OPEN, LOCKED, HUB = (
    f"{API}/environmentshub/keeper/open",
    f"{API}/environmentshub/keeper/locked",
    f"{API}/environmentshub",
)
SMALL_KEY = rsa.generate_private_key(public_exponent=65537, key_size=1024)
DEEP: Any = 1
for _ in range(150):
    DEEP = [DEEP]
LOGIN = f"{API}/auth_challenge"
ODD_LINES = {"Idempotency-Key": f"sha256:{'a' * 64}", "X-Prime-Line-Format": "odd"}
SHARED_HIDDEN = {"name": "shared", "team_slug": "the-team", "visibility": "PRIVATE"}


def wheel_of(**changes: Any) -> dict[str, Any]:
    """Return the announcement of a wheel of `open`."""
    return {
        "content_hash": "ab" * 32, "filename": "open-0.3.0-py3-none-any.whl", "sha256": "cd" * 32, "size": 10,
        "semantic_version": "0.3.0", "metadata": {}, **changes,
    }  # fmt: skip


def source_of(**changes: Any) -> dict[str, Any]:
    """Return the announcement of a source archive of `open`."""
    return {
        "content_hash": "ab" * 32, "filename": "open.tar.gz", "sha256": "cd" * 32, "semantic_version": "0.3.0",
        "metadata": {}, **changes,
    }  # fmt: skip


ACCESS = [
    ("nobody", "GET", f"{API}/user/whoami", {}, 401, "this needs an API key; run `prime login`"),
    ("wrong", "GET", f"{API}/user/whoami", {}, 401, "this API key is wrong, expired or was revoked"),
    ("keeper", "POST", f"{API}/users", {"json": {"slug": "new"}}, 403, "this needs an administrator of the hub"),
    ("stranger", "PUT", f"{API}/evaluations/{{public}}", {"json": {}}, 403, "belongs to 'keeper'"),
    ("narrow", "POST", f"{HUB}/resolve", {"json": {"name": "x"}}, 403, "may not write environments; use one with"),
    ("stranger", "DELETE", OPEN, {}, 403, "keeper/open belongs to 'keeper'"),
    (
        "reader",
        "POST",
        f"{HUB}/{{shared}}/wheels",
        {"json": {}},
        403,
        "the team 'the-team'; this needs a role of member",
    ),
    ("nobody", "GET", f"{HUB}/?mine_only=true", {}, 401, "your own environments and stars need an API key"),
    ("nobody", "GET", f"{HUB}/facets?starred_only=true", {}, 401, "your own environments and stars need an API key"),
    ("nobody", "GET", f"{API}/evaluations/", {}, 401, "your own evaluations need an API key"),
]
REGISTRY = [
    ("stranger", "GET", f"{LOCKED}/@latest", {}, 404, "environment keeper/locked not found on this hub"),
    ("stranger", "POST", f"{HUB}/{{empty}}/wheels", {"json": {}}, 404, "not found on this hub"),
    ("nobody", "GET", f"{HUB}/?ci_status=odd", {}, 400, "no action status 'odd'; there are PENDING"),
    ("nobody", "GET", f"{OPEN}/@9.9", {}, 404, "version 9.9 of keeper/open not found; there are 0.2.0, 0.1.0"),
    ("nobody", "GET", f"{OPEN}/@{'1' * 5000}", {}, 404, "version 11111111111111111111… of keeper/open not found"),
    ("keeper", "GET", f"{HUB}/keeper/empty/@latest", {}, 404, "has no published version yet"),
    ("keeper", "POST", f"{HUB}/resolve", {"json": {"name": "x", "owner_slug": "stranger"}}, 403, "cannot act as"),
    ("keeper", "POST", f"{HUB}/resolve", {"json": {"name": "x", "team_id": "none"}}, 404, "team 'none' not found"),
    ("reader", "POST", f"{HUB}/resolve", {"json": {"name": "x", "team_slug": "the-team"}}, 403, "this needs a member"),
    (
        "member", "POST", f"{HUB}/resolve", {"json": SHARED_HIDDEN}, 403,
        "only an owner of 'the-team' can change who sees",
    ),
    ("nobody", "GET", f"{HUB}/keeper/alone/@latest/package", {}, 404, "published as a wheel only"),
    ("nobody", "GET", f"{OPEN}/@latest/inspect?path=nothing", {}, 404, "nothing not found in the source"),
    ("nobody", "GET", f"{OPEN}/@latest/inspect?path=../x", {}, 400, "leads out of the source"),
    ("keeper", "POST", f"{HUB}/keeper/empty/fork", {}, 404, "has no published version yet"),
    ("keeper", "POST", f"{OPEN}/fork", {}, 409, "keeper/open already exists"),
    ("stranger", "POST", f"{HUB}/keeper/bad/fork", {}, 403, "is quarantined: it steals"),
    ("keeper", "PUT", f"{HUB}/keeper/bad/project-status", {"json": {"status": "active"}}, 403, "only an administrator"),
    ("admin", "DELETE", f"{OPEN}/quarantine", {}, 409, "is not quarantined: it is active"),
    ("admin", "PUT", f"{HUB}/keeper/none/quarantine", {"json": {"reason": "x"}}, 404, "keeper/none not found"),
    ("keeper", "GET", f"{HUB}/keeper/bad/@latest/package", {}, 403, "is quarantined: it steals"),
    ("keeper", "GET", f"{HUB}/keeper/bad/@latest/inspect", {}, 403, "is quarantined: it steals"),
    ("keeper", "POST", f"{HUB}/keeper/empty/actions/retry", {}, 404, "has no version to check"),
    ("nobody", "GET", f"{OPEN}/actions/none/logs", {}, 404, "check none of keeper/open not found"),
]  # fmt: skip
PUBLISHING = [
    ("keeper", "POST", f"{HUB}/{{open}}/wheels", {"json": wheel_of(size=2**40)}, 413, "this hub takes at most"),
    (
        "keeper", "POST", f"{HUB}/{{open}}/wheels", {"json": wheel_of(semantic_version="one")}, 400,
        "'one' is not a version",
    ),
    (
        "keeper", "POST", f"{HUB}/{{open}}/wheels",
        {"json": wheel_of(semantic_version="0.1.0", filename="open-0.1.0-py3-none-any.whl")}, 409,
        "already exists, and a published version never changes",
    ),
    (
        "keeper", "POST", f"{HUB}/{{open}}/versions", {"json": source_of(semantic_version="0.1.0")}, 409,
        "already exists, and a published version never changes",
    ),
    (
        "keeper", "POST", f"{HUB}/{{open}}/versions", {"json": source_of(content_hash="{hash}")}, 409,
        "version 0.1.0 of keeper/open with content hash",
    ),
    (
        "keeper", "POST", f"{HUB}/{{old}}/wheels", {"json": wheel_of(filename="old-0.3.0-py3-none-any.whl")}, 409,
        "old is archived and takes no new versions",
    ),
    ("keeper", "POST", f"{HUB}/{{old}}/versions", {"json": source_of()}, 409, "old is archived and takes no new"),
    ("keeper", "POST", f"{HUB}/{{empty}}/wheels/{{pending}}/finalize", {}, 400, "announced but not uploaded yet"),
    ("keeper", "POST", f"{HUB}/{{empty}}/versions/{{unsent}}/finalize", {}, 400, "announced but not uploaded yet"),
    ("keeper", "POST", f"{HUB}/{{sourced}}/versions/{{no_wheel}}/finalize", {}, 400, "has no checked wheel"),
    ("keeper", "POST", f"{HUB}/{{open}}/wheels/{{pending}}/finalize", {}, 404, "not found in this environment"),
    ("keeper", "POST", f"{HUB}/{{open}}/versions/{{unsent}}/finalize", {}, 404, "not found in this environment"),
    ("nobody", "PUT", f"{API}/uploads/a.b", {"content": b"x"}, 403, "this upload URL is wrong or expired"),
    ("nobody", "PUT", "{upload}", {"content": b"x"}, 400, "announced was"),
    ("nobody", "PUT", "{upload}", {"content": b"x" * 2000}, 413, "is larger than the"),
    ("nobody", "PUT", "{upload}", {"content": iter([b"x" * 2000])}, 413, "is larger than the"),
    ("nobody", "PUT", "{forgotten}", {"content": b"x"}, 404, "was replaced by another one, or its bytes were refused"),
]  # fmt: skip
INDEX = [
    ("nobody", "GET", "/index/keeper/simple/", {"headers": {"Authorization": "Basic ?"}}, 401, "is not basic"),
    ("nobody", "GET", "/index/keeper/simple/", {"auth": ("x", "a.b")}, 401, "this index token expired or is wrong"),
    ("nobody", "GET", "/index/keeper/simple/", {"auth": ("x", "prime_x")}, 401, "this index token expired or is wrong"),
    ("nobody", "GET", "/index/keeper/simple/locked/", {}, 404, "project locked not found in the index of keeper"),
    ("nobody", "GET", "/index/keeper/simple/bad-name/", {}, 404, "project bad-name not found in the index of keeper"),
    ("nobody", "GET", f"/index/keeper/files/{'a' * 64}/x.whl", {}, 404, "x.whl not found in the index of keeper"),
    ("nobody", "GET", "/simple/locked/", {}, 404, "project locked not found in the index of this hub"),
    ("nobody", "GET", "/simple/open/", {"headers": {"Accept": "image/png"}}, 406, "the index speaks"),
    ("nobody", "POST", "/index/keeper/legacy/", {"auth": ("x", "a.b")}, 401, "must be an API key that is in use"),
    ("stranger", "POST", "/index/keeper/legacy/", {}, 403, "you are 'stranger' and cannot publish as 'keeper'"),
    ("stranger", "POST", "/index/nobody-at-all/legacy/", {}, 403, "cannot publish as 'nobody-at-all'"),
]
ACCOUNTS = [
    ("nobody", "GET", f"{LOGIN}/status?challenge={{login}}", {}, 401, "send the status_auth_token"),
    ("wrong", "GET", f"{LOGIN}/status?challenge={{login}}", {}, 401, "does not belong to this login"),
    ("wrong", "GET", f"{LOGIN}/status?challenge=NONE", {}, 404, "expired or does not exist"),
    ("keeper", "POST", f"{LOGIN}/approve", {"json": {"challenge": "NONE"}}, 404, "expired or does not exist"),
    ("keeper", "POST", f"{LOGIN}/approve", {"json": {"challenge": "{done}"}}, 409, "was approved before"),
    ("nobody", "POST", f"{LOGIN}/generate", {"json": {"encryptionPublicKey": "x"}}, 400, "not a public key"),
    (
        "nobody", "POST", f"{LOGIN}/generate", {"json": {"encryptionPublicKey": pem_of(SMALL_KEY)}}, 400,
        "must be an RSA key of 2048 to 8192 bits",
    ),
    ("stranger", "GET", f"{API}/teams/the-team", {}, 404, "team 'the-team' not found among yours"),
    ("member", "PATCH", f"{API}/teams/the-team", {"json": {"name": "x"}}, 403, "this needs an owner"),
    ("keeper", "DELETE", f"{API}/teams/the-team/members/stranger", {}, 404, "not found among the members"),
    ("keeper", "DELETE", f"{API}/teams/the-team/members/no-such-one", {}, 404, "user 'no-such-one' not found"),
    ("member", "DELETE", f"{API}/teams/the-team/members/reader", {}, 403, "only an owner of 'the-team' can remove"),
    ("keeper", "DELETE", f"{API}/teams/the-team/members/keeper", {}, 409, "is the last owner of the team"),
    ("keeper", "PATCH", f"{API}/user/slug", {"json": {"slug": "the-team"}}, 409, "is already taken; choose another"),
    ("keeper", "POST", f"{API}/teams", {"json": {"slug": "reader"}}, 409, "is already taken; choose another"),
    ("keeper", "DELETE", f"{API}/user/keys/none", {}, 404, "API key none not found among yours"),
    ("narrow", "POST", f"{API}/user/keys", {"json": {"name": "x"}}, 403, "it has not these itself"),
    (
        "narrow", "POST", f"{API}/user/keys", {"json": {"name": "x", "scopes": {"account": "read"}}}, 403,
        "expires before the one that you ask for would",
    ),
]  # fmt: skip
THE_REST = [
    ("stranger", "GET", f"{API}/evaluations/{{private}}", {}, 404, "not found on this hub"),
    (
        "keeper",
        "PUT",
        f"{API}/evaluations/{{public}}",
        {"json": {"status": "TIMEOUT"}},
        409,
        "is already closed: FAILED",
    ),
    ("keeper", "POST", f"{API}/evaluations/{{public}}/finalize", {}, 409, "is already closed: FAILED"),
    ("nobody", "GET", f"{API}/evaluations/?suite_id=s&team_id=the-team", {}, 404, "team 'the-team' not found"),
    ("keeper", "POST", f"{API}/evaluations/{{private}}/samples", {"content": b"{"}, 400, "the body is not JSON"),
    ("keeper", "POST", f"{API}/evaluations/{{private}}/samples", {"json": {}}, 400, "the body must be"),
    ("stranger", "GET", f"{API}/secrets/{{secret}}", {}, 404, "not found on this hub"),
    ("keeper", "POST", f"{API}/secrets", {"json": {"name": "TOKEN", "value": "y"}}, 409, "is already taken here"),
    ("keeper", "PATCH", f"{API}/secrets/{{file}}", {"json": {"value": "no base64"}}, 400, "must be in base64"),
    ("member", "GET", f"{HUB}/{{open}}/secrets", {}, 403, "belongs to 'keeper'"),
    ("keeper", "PATCH", f"{HUB}/{{open}}/secrets/{{secret}}", {"json": {}}, 404, "not found among the own secrets of"),
    ("keeper", "POST", f"{HUB}/{{shared}}/secrets/link/{{secret}}", {}, 404, "does not belong to 'the-team'"),
    ("keeper", "DELETE", f"{HUB}/{{open}}/secrets/link/{{secret}}", {}, 404, "is not linked to keeper/open"),
    ("keeper", "PATCH", f"{HUB}/{{open}}/variables/none", {"json": {}}, 404, "variable none not found among those"),
    ("keeper", "GET", f"{API}/traces/none", {}, 404, "trace none not found"),
    ("keeper", "GET", f"{API}/episodes/none", {}, 404, "episode none not found"),
    ("keeper", "GET", f"{API}/runs/none", {}, 404, "run none not found"),
    ("keeper", "DELETE", f"{API}/traces?run_id=none", {}, 404, "run none not found"),
    ("keeper", "GET", f"{API}/traces?context.a=%00", {}, 400, "holds a zero byte"),
    ("keeper", "GET", f"{API}/traces?cursor=x", {}, 400, "the cursor is not one of this list"),
    ("keeper", "GET", f"{API}/traces/none/nodes?after=1&cursor=x", {}, 400, "give `after` or `cursor`, not both"),
    ("keeper", "POST", f"{API}/traces", {"headers": ODD_LINES}, 400, "'odd' is neither trace nor episode"),
    ("keeper", "POST", f"{API}/traces", {}, 400, "Idempotency-Key must be sha256: and 64 hex digits"),
]
ONE = {"name": "x", "docker_image": "host"}
BOX = f"{API}/sandbox"
NODE = {
    "name": "n", "url": "http://127.0.0.1:1", "secret": "ab" * 32, "level": "container", "backend": "b", "images": [],
    "capacity": 1, "live": 0, "pending": 0, "idle": 0, "version": "1",
}  # fmt: skip
SANDBOXES = [
    ("nobody", "POST", BOX, {"json": ONE}, 401, "this needs an API key"),
    ("narrow", "POST", BOX, {"json": ONE}, 403, "may not write sandboxes; use one with the scope sandboxes:write"),
    ("keeper", "POST", BOX, {"json": ONE}, 503, "start one with `prime sandbox serve`"),
    ("keeper", "POST", BOX, {"json": {**ONE, "team_id": "none"}}, 404, "team 'none' not found"),
    ("keeper", "POST", BOX, {"json": {**ONE, "gpu_count": 1, "gpu_type": "x"}}, 422, "GPUs are not available"),
    ("keeper", "GET", f"{BOX}?team_id=none", {}, 404, "team 'none' not found among yours"),
    ("keeper", "GET", f"{BOX}?per_page=0", {}, 422, "greater than or equal to 1"),
    ("keeper", "GET", f"{BOX}/none", {}, 404, "sandbox none not found on this hub"),
    ("keeper", "DELETE", f"{BOX}/none", {}, 404, "sandbox none not found on this hub"),
    ("keeper", "POST", f"{BOX}/none/auth", {}, 404, "sandbox none not found on this hub"),
    ("keeper", "DELETE", BOX, {"json": {}}, 400, "name the sandboxes by sandbox_ids or by labels"),
    ("keeper", "POST", f"{BOX}/none/ssh-session", {"json": {}}, 400, "there is no SSH into the sandboxes"),
    ("keeper", "POST", f"{BOX}/none/checkpoints", {}, 404, "checkpoints: not found, this is not available"),
    ("keeper", "GET", f"{BOX}/networks", {}, 404, "networks between sandboxes: not found, this is not available"),
    ("keeper", "GET", f"{BOX}/volumes/x", {}, 404, "volumes: not found, this is not available on this server"),
    ("keeper", "POST", f"{API}/images/build", {"json": {}}, 404, "building images: not found, this is not available"),
    ("keeper", "GET", f"{API}/template/registry-credentials", {}, 404, "registry credentials: not found"),
    ("keeper", "POST", f"{API}/sandbox-nodes", {"json": NODE}, 403, "this needs an administrator of the hub"),
    ("admin", "POST", f"{API}/sandbox-nodes", {"json": {**NODE, "level": "none"}}, 400, "level container or better"),
    ("admin", "POST", f"{API}/sandbox-nodes", {"json": {**NODE, "url": "x"}}, 400, "not the address of a sandbox node"),
    ("admin", "DELETE", f"{API}/sandbox-nodes/none", {}, 404, "sandbox node none not found on this hub"),
]
VALUES = [
    ("nobody", "GET", f"{HUB}/?offset={'9' * 30}", {}, 422, "less than or equal to 1000000000"),
    ("keeper", "POST", f"{API}/evaluations/", {"json": {"name": "x", "metadata": {"a": DEEP}}}, 422, "100 deep"),
    ("keeper", "POST", f"{API}/evaluations/", {"json": {"name": "x", "metrics": {"a": DEEP}}}, 422, "100 deep"),
    ("keeper", "GET", f"{API}/runs?created_after=0001-01-01T00:00:00%2B14:00", {}, 400, "no such moment in UTC"),
    ("keeper", "GET", f"{API}/traces?created_before=9999-12-31T23:59:59-14:00", {}, 400, "no such moment in UTC"),
    *(
        (
            "keeper",
            "GET",
            f"{API}/{kind}?cursor={base64.urlsafe_b64encode(cursor).decode()}",
            {},
            400,
            "the cursor is not",
        )
        for kind in ("traces", "episodes", "runs")
        for cursor in (b"[" * 1400, b'["0001-01-01T00:00:00+14:00","x"]', b'["2001-01-01T00:00:00","\\ud800"]')
    ),
]
PAGES = [
    ("nobody", "GET", "/dashboard/owners/none", {}, 404, "nobody is called"),
    ("nobody", "GET", "/dashboard/evaluations/{public}/samples/none", {}, 404, "rollout none of evaluation"),
    ("nobody", "POST", "/dashboard/signin", {"data": {"form_token": "x"}}, 403, "did not come from a page of this hub"),
    ("nobody", "GET", f"/dashboard/environments/keeper/open/versions/{'1' * 5000}", {}, 404, "not found"),
]
CASES = [*ACCESS, *REGISTRY, *PUBLISHING, *INDEX, *ACCOUNTS, *THE_REST, *SANDBOXES, *VALUES, *PAGES]
Case = tuple[str, str, str, dict[str, Any], int, str]
