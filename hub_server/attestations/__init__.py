"""Attestations of wheels (PEP 740): verified when they come, kept, and served as provenance."""
