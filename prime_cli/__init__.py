"""The `prime` command-line tool: the local half of the open Lab."""

__version__ = "0.1.0"
