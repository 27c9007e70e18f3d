"""The problems: what is asked, inputs by chance, and the right answer to each of them.

A problem of your own is one entry more in `PROBLEMS`. `draw` makes an input, `solve` is the reference: it runs here, with you,
and what it returns never enters a sandbox. `program` is a solution as a model would write it, for demonstrations.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from string import ascii_lowercase

WORDS = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "harbor", "iris", "juniper", "kelp", "lagoon")


@dataclass(frozen=True)
class Problem:
    """A program is asked for that reads an input from stdin and prints the answer."""

    name: str
    statement: str
    draw: Callable[[random.Random], str]
    solve: Callable[[str], str]
    program: str


def numbers(rng: random.Random, low: int = -50, high: int = 50, most: int = 12) -> str:
    """Draw a line of whole numbers."""
    return " ".join(str(rng.randint(low, high)) for _ in range(rng.randint(1, most)))


def letters(rng: random.Random, alphabet: str = ascii_lowercase, most: int = 16) -> str:
    """Draw a line of letters."""
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, most)))


def words(rng: random.Random, most: int = 8) -> str:
    """Draw a line of words, some of them more than once."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def fibonacci(n: int) -> int:
    """Return the n-th Fibonacci number; the 0th is 0 and the 1st is 1."""
    before, last = 1, 0
    for _ in range(n):
        before, last = last, before + last
    return last


def longest_rise(values: list[int]) -> int:
    """Return how long the longest stretch is in which each number is greater than the one before it."""
    longest = current = 1
    for before, value in zip(values, values[1:]):
        current = current + 1 if value > before else 1
        longest = max(longest, current)
    return longest


def is_balanced(text: str) -> bool:
    """Say whether every bracket is closed by its like, in the right order."""
    opened = []
    for bracket in text:
        if bracket in "([{":
            opened.append({"(": ")", "[": "]", "{": "}"}[bracket])
        elif not opened or opened.pop() != bracket:
            return False
    return not opened


def brackets(rng: random.Random) -> str:
    """Draw brackets, balanced in about half of the cases."""
    if rng.random() < 0.5:
        return letters(rng, "()[]{}", most=8)
    text = ""
    for _ in range(rng.randint(1, 5)):
        pair = rng.choice(["()", "[]", "{}"])
        text = rng.choice([f"{pair[0]}{text}{pair[1]}", text + pair])
    return text


def palindrome_or_not(rng: random.Random) -> str:
    """Draw letters, the same from behind in about half of the cases."""
    half = letters(rng, "abc", most=5)
    return half + half[::-1] if rng.random() < 0.5 else letters(rng, "abc", most=8)


def most_common_word(text: str) -> str:
    """Return the word that stands there most often; of several the first by alphabet."""
    counted = Counter(text.split())
    return min(counted, key=lambda word: (-counted[word], word))


def caesar(text: str) -> str:
    """Shift the letters of the second line by the number of the first."""
    shift, line = text.split("\n")
    return "".join(ascii_lowercase[(ascii_lowercase.index(letter) + int(shift)) % 26] for letter in line)


PROBLEMS = (
    Problem(
        "sum",
        "Read a line of whole numbers and print their sum.",
        numbers,
        lambda text: str(sum(map(int, text.split()))),
        program='print(sum(map(int, input().split())))',
    ),
    Problem(
        "spread",
        "Read a line of whole numbers and print the greatest minus the smallest.",
        numbers,
        lambda text: str(max(map(int, text.split())) - min(map(int, text.split()))),
        program='a = list(map(int, input().split()))\nprint(max(a) - min(a))',
    ),
    Problem(
        "reverse-words",
        "Read a line of words and print them in reverse order, with one space between.",
        words,
        lambda text: " ".join(reversed(text.split())),
        program='print(*reversed(input().split()))',
    ),
    Problem(
        "vowels",
        "Read a word and print how many of its letters are vowels (a, e, i, o, u).",
        letters,
        lambda text: str(sum(letter in "aeiou" for letter in text)),
        program='print(sum(c in "aeiou" for c in input()))',
    ),
    Problem(
        "palindrome",
        "Read a word and print yes if it is the same read from behind, else no.",
        palindrome_or_not,
        lambda text: "yes" if text == text[::-1] else "no",
        program='s = input()\nprint("yes" if s == s[::-1] else "no")',
    ),
    Problem(
        "gcd",
        "Read two whole numbers from one line and print their greatest common divisor.",
        lambda rng: f"{(factor := rng.randint(1, 30)) * rng.randint(1, 30)} {factor * rng.randint(1, 30)}",
        lambda text: str(math.gcd(*map(int, text.split()))),
        program='import math\nprint(math.gcd(*map(int, input().split())))',
    ),
    Problem(
        "fibonacci",
        "Read a number n and print the n-th Fibonacci number. The 0th is 0, the 1st is 1.",
        lambda rng: str(rng.randint(0, 90)),
        lambda text: str(fibonacci(int(text))),
        program='a, b = 0, 1\nfor _ in range(int(input())):\n    a, b = b, a + b\nprint(a)',
    ),
    Problem(
        "longest-rise",
        "Read a line of whole numbers and print the length of the longest run of neighbours in which each number is greater "
        "than the one before it. A single number is a run of length 1.",
        numbers,
        lambda text: str(longest_rise([int(part) for part in text.split()])),
        program='a = list(map(int, input().split()))\nn = m = 1\nfor x, y in zip(a, a[1:]):\n    n = n + 1 if y > x else 1\n    m = max(m, n)\nprint(m)',
    ),
    Problem(
        "brackets",
        "Read a line of brackets ()[]{} and print yes if they are balanced, else no.",
        brackets,
        lambda text: "yes" if is_balanced(text) else "no",
        program='s = input()\nfor _ in s:\n    s = s.replace("()", "").replace("[]", "").replace("{}", "")\nprint("no" if s else "yes")',
    ),
    Problem(
        "run-lengths",
        "Read a word and print it with each run of equal letters as the letter and its count: aaab becomes a3b1.",
        lambda rng: letters(rng, "abc"),
        lambda text: "".join(f"{letter}{len(list(run))}" for letter, run in groupby(text)),
        program='from itertools import groupby\nprint("".join(c + str(len(list(g))) for c, g in groupby(input())))',
    ),
    Problem(
        "most-common",
        "Read a line of words and print the one that occurs most often. If several do, print the first of them by alphabet.",
        words,
        most_common_word,
        program='w = input().split()\nprint(min(w, key=lambda x: (-w.count(x), x)))',
    ),
    Problem(
        "caesar",
        "Read a number from the first line and a word of lower-case letters from the second. Print the word with each letter "
        "shifted forward by that number in the alphabet, going on at a after z.",
        lambda rng: f"{rng.randint(0, 60)}\n{letters(rng)}",
        caesar,
        program='n = int(input())\nprint("".join(chr((ord(c) - 97 + n) % 26 + 97) for c in input()))',
    ),
)


def cases(problem: Problem, seed: str, count: int) -> list[tuple[str, str]]:
    """Return different inputs with their answers; the same seed gives the same ones."""
    rng = random.Random(f"{problem.name} {seed}")
    inputs: dict[str, None] = {}
    for _ in range(50 * count):  # there may be fewer different ones than that
        if len(inputs) == count:
            break
        inputs[problem.draw(rng)] = None
    return [(text, problem.solve(text)) for text in inputs]
