"""One thin module per command group: parse, call one function, print."""
