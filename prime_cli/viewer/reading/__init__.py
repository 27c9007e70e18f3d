"""What the viewer reads: files and figures, without a widget in sight."""
