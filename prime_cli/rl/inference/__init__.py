"""Inference: the embedded engine, the server in front of it, and the client that steers either engine."""
