"""The Environments Hub: the server half of the open Lab."""
