"""One image's detections, their readers, writers and adapters; true counts, metrics and the NMS baselines."""
