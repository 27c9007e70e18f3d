"""What every part of the tool leans on: errors, output, files, settings. Imports nothing above itself."""
