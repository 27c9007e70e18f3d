"""Prompt optimisation: the plan, the search by the gepa package, what was paid for, and whether it helped."""
