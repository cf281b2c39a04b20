"""From photos to detections: the embedded detector, other detectors, and what they need of an image."""
