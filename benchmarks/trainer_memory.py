"""Peak memory of log-probabilities and their gradient over a large vocabulary: the chunked head against the plain one.

    python benchmarks/trainer_memory.py [--check] [--tokens 4096] [--vocabulary 151936]

Each form runs in a process of its own, which reports how far its resident memory rose above what the inputs and the
gradients of hidden states and weight need. With --check the exit code is 1 when the chunked head needs more than a
quarter of the plain one.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

GOAL = 0.25
HIDDEN = 128


def measure(form: str, tokens: int, vocabulary: int, chunk: int) -> int:
    """Return the bytes by which the peak of this process rises."""
    import torch

    from prime_cli.rl.trainer.head import head_logprobs

    torch.set_num_threads(1)
    hidden = torch.randn(tokens, HIDDEN, requires_grad=True)
    weight = torch.randn(vocabulary, HIDDEN, requires_grad=True)
    hidden.grad, weight.grad = torch.zeros_like(hidden), torch.zeros_like(weight)
    targets, temperatures = torch.randint(0, vocabulary, (tokens,)), torch.ones(tokens)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if form == "chunked":
        logprobs, _ = head_logprobs(hidden, weight, None, targets, temperatures, chunk=chunk)
    else:
        logits = (hidden @ weight.T).float() / temperatures[:, None]
        distribution = torch.log_softmax(logits, -1)
        logprobs = distribution.gather(1, targets[:, None])[:, 0]
        with torch.no_grad():
            -(distribution.exp() * distribution).sum(-1)
    logprobs.sum().backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def main() -> None:
    """Measure both forms and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--form", choices=["plain", "chunked"])
    options = parser.parse_args()
    if options.form:
        print(json.dumps(measure(options.form, options.tokens, options.vocabulary, options.chunk)))
        return
    shape = ["--tokens", str(options.tokens), "--vocabulary", str(options.vocabulary), "--chunk", str(options.chunk)]
    peaks = {}
    for form in ("plain", "chunked"):
        done = subprocess.run(
            [sys.executable, __file__, "--form", form, *shape], capture_output=True, text=True, check=True
        )
        peaks[form] = int(done.stdout)
        print(f"{form:8} {peaks[form] / 2**20:8,.0f} MiB")
    share = peaks["chunked"] / peaks["plain"]
    print(f"the chunked head needs {share:.2f} of the plain one's memory (goal: at most {GOAL})")
    if options.check and share > GOAL:
        sys.exit(1)


if __name__ == "__main__":
    main()
