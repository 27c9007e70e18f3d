"""Where a run's figures go beside `metrics.jsonl`: W&B and TensorBoard, each in a process of its own."""
