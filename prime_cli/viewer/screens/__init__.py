"""The screens of the viewer, one a file."""
