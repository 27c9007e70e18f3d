"""Event files for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class TensorboardSink:
    """Writes scalars under the names of the metrics into event files in `folder`, shown within seconds."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder.mkdir(exist_ok=True)
        self._writer = EventFileWriter(str(folder), flush_secs=5)

    def write(self, step: int, figures: Mapping[str, float | int], at: float) -> None:
        """Write one event with all figures."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=values)))

    def close(self) -> None:
        """Flush the file."""
        self._writer.close()
