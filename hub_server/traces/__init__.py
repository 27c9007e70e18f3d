"""Traces: what agents did, uploaded as lines of JSON, listed by facts and read back byte by byte."""
