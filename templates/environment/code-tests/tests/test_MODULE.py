import asyncio
import io
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import verifiers as vf

import ${module}_sandbox
from ${module} import BY_NAME, code_of, gave_a_program, is_right, load_environment, passed, reply_with, solved, verdict_of
from ${module}_problems import PROBLEMS, cases

ADDS = "Here it is:\n```python\nprint(sum(map(int, input().split())))\n```"
RIGHT = {"exit_code": 0, "stdout": "3 \n", "stderr": ""}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_a_problem_has_different_cases_and_an_answer_to_each(problem):
    drawn = cases(problem, "0", 10)
    assert len({given for given, _ in drawn}) == 10
    assert all(answer and answer == answer.strip() for _, answer in drawn)
    assert len({answer for _, answer in drawn}) > 1
    assert drawn == cases(problem, "0", 10) != cases(problem, "1", 10)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_the_program_that_is_demonstrated_is_right(problem, monkeypatch, capsys):
    for given, answer in cases(problem, "0", 5):
        monkeypatch.setattr("sys.stdin", io.StringIO(given + "\n"))
        exec(problem.program, {})
        assert capsys.readouterr().out.strip() == answer


def test_care_decides_how_often_a_demonstration_answers_its_question():
    def share(care):
        rows = load_environment(num_demonstrations=600, num_examples=0, care=care).get_dataset()
        right = [row["demonstration"][0]["content"] == reply_with(BY_NAME[row["info"]["problem"]].program) for row in rows]
        return sum(right) / len(right)

    assert share(1.0) == 1.0
    assert share(0.0) < 0.2 < share(0.5) < 0.7
    with pytest.raises(ValueError, match="probability"):
        load_environment(care=2)


def test_the_program_is_the_last_block_after_the_thinking():
    assert code_of(ADDS).strip() == "print(sum(map(int, input().split())))"
    assert code_of("```python\nno\n```\n```py\nyes\n```").strip() == "yes"
    assert code_of("<think>```python\nno\n```</think> nothing") is None
    assert code_of("print(1)") is None


def test_verdicts():
    assert is_right(RIGHT, "3")
    assert not is_right({**RIGHT, "stdout": "3\n3"}, "3")
    assert [verdict_of({**RIGHT, **change}, "3") for change in (
        {}, {"stdout": "4"}, {"exit_code": 1}, {"exit_code": 137, "timed_out": True},
        {"exit_code": 137, "oom_killed": True}, {"exit_code": 137, "cut": True},
    )] == ["passed", "wrong", "crashed", "too slow", "out of memory", "too much output"]


def test_rewards():
    state = {"verdicts": ["passed", "wrong"], "code": "x"}
    assert (passed(state), gave_a_program(state), solved(state)) == (0.5, 1.0, 0.0)
    assert (passed({}), gave_a_program({"code": None}), solved({})) == (0.0, 0.0, 0.0)
    assert solved({"verdicts": ["passed"]}) == 1.0


def test_what_is_held_out_has_other_tests_than_what_is_trained_on():
    environment = load_environment(num_train=24, num_eval=12)
    train, held_out = environment.get_dataset(), environment.get_eval_dataset()
    assert {row["info"]["problem"] for row in held_out} == {problem.name for problem in PROBLEMS}
    assert not {row["info"]["seed"] for row in train} & {row["info"]["seed"] for row in held_out}
    with pytest.raises(ValueError, match="num_tests"):
        load_environment(num_tests=0)
    with pytest.raises(ValueError, match="timeout_s"):
        load_environment(timeout_s=0)
    with pytest.raises(ValueError, match="at_once"):
        load_environment(at_once=0)


class Service:
    """A hub and its gateway in one, which runs programs here: good enough for tests whose programs are their own."""

    def __init__(self):
        self.made, self.deleted, self.bodies, self.fails = [], [], [], {}

    def answer(self, method, path, body):
        self.bodies.append(body)
        for part, failure in self.fails.items():
            if part in path:
                return failure
        if path == "/api/v1/sandbox":
            self.made.append(f"s{len(self.made)}")
            return 200, {"id": self.made[-1], "status": "PENDING"}
        if method == "DELETE":
            self.deleted.append(path.rpartition("/")[2])
            return 200, {}
        if path.endswith("/auth"):
            return 200, {"gateway_url": self.url, "user_ns": "u", "job_id": "j", "token": "t"}
        if path == "/u/j/run-batch":
            return 200, {"results": [self.ran(body["program"]["code"], given) for given in body["inputs"]]}
        return 200, {"id": path.rpartition("/")[2], "status": "RUNNING"}

    def ran(self, code, given):
        done = subprocess.run([sys.executable, "-I", "-S", "-c", code], input=given, capture_output=True, text=True)
        return {"stdout": done.stdout, "stderr": done.stderr, "exit_code": done.returncode, "timed_out": False}


@pytest.fixture
def service(monkeypatch):
    served = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self):
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            status, data = served.answer(self.command, self.path, body)
            data = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("PRIME_API_BASE_URL", served.url)
    monkeypatch.setenv("PRIME_API_KEY", "key")
    monkeypatch.setattr(${module}_sandbox, "TRIES", 1)
    yield served
    server.shutdown()
    server.server_close()


def judged(reply):
    """Return the state of a rollout on the problem `sum` in which the model said `reply`."""
    environment = load_environment(num_train=12, num_eval=12, num_tests=3)

    async def roll():
        state = {"info": {"problem": "sum", "seed": "0"}, "error": None}
        try:
            # What the library does with a reply: see verifiers.MultiTurnEnv.
            with parent_does_nothing(environment):
                await environment.add_model_response(state, [], SimpleNamespace(message=SimpleNamespace(content=reply)))
        except vf.Error as error:
            state["error"] = error
        await environment.delete_sandbox(state)
        await environment.delete_sandboxes()
        return state

    return asyncio.run(roll())


@contextmanager
def parent_does_nothing(environment):
    parent = vf.MultiTurnEnv.add_model_response

    async def nothing(*_):
        pass

    vf.MultiTurnEnv.add_model_response = nothing
    try:
        yield
    finally:
        vf.MultiTurnEnv.add_model_response = parent


def test_a_program_runs_in_a_sandbox_that_is_deleted_and_never_sees_what_is_expected(service):
    state = judged(ADDS)
    assert state["error"] is None
    assert state["verdicts"] == ["passed"] * 3
    assert service.made == service.deleted == ["s0"]
    (batch,) = [body for body in service.bodies if body and "program" in body]
    assert set(batch) == {"program", "inputs", "timeout_s"}


def test_a_wrong_program_is_no_error(service):
    assert judged("```python\nprint(input()[0])\n1/0\n```")["verdicts"] == ["crashed"] * 3
    assert judged("```python\nprint('x')\n```")["verdicts"] == ["wrong"] * 3
    assert service.made == service.deleted


def test_without_a_program_there_is_no_sandbox(service):
    state = judged("I do not know.")
    assert (state["code"], state["verdicts"], state["error"]) == (None, [], None)
    assert service.made == []


@pytest.mark.parametrize("part", ["run-batch", "/auth", "/api/v1/sandbox"])
def test_a_service_that_fails_is_an_error_and_no_reward(service, part):
    service.fails = {part: (503, {"detail": "no node"})}
    error = judged(ADDS)["error"]
    assert isinstance(error, vf.SandboxError)
    assert "no node" in str(error)


def test_a_sandbox_that_its_program_took_down_has_failed_the_tests(service):
    service.fails = {"run-batch": (410, {"error": "sandbox_terminated"}), "error-context": (200, {"errorType": "OOM_KILLED"})}
    state = judged(ADDS)
    assert (state["verdicts"], state["error"]) == (["out of memory"] * 3, None)
    service.fails["error-context"] = (200, {"errorType": None})
    assert isinstance(judged(ADDS)["error"], vf.SandboxError)


def test_the_login_is_found_as_other_clients_find_it(monkeypatch, tmp_path):
    for name in ("PRIME_API_BASE_URL", "PRIME_BASE_URL", "PRIME_API_KEY", "PRIME_TEAM_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PRIME_HOME", str(tmp_path))
    with pytest.raises(vf.SandboxError, match="no API key"):
        ${module}_sandbox.find_login()
    stored = {"base_url": "http://hub:1/api/v1", "api_key": "stored", "team_id": "team"}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert ${module}_sandbox.find_login() == ${module}_sandbox.Login("http://hub:1", "stored", "team")
    monkeypatch.setenv("PRIME_API_BASE_URL", "http://other:2")
    with pytest.raises(vf.SandboxError, match="http://other:2"):
        ${module}_sandbox.find_login()
