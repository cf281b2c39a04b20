"""From photos to detections: the embedded detector, other detectors, and what they need of an image."""

from tallybox.photos.detector import DarknetDetector, Detector, YoloV4Tiny
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.packaged import DarknetFiles, sample_photos, yolov4tiny_files

__all__ = [
    "DarknetDetector",
    "DarknetFiles",
    "Detector",
    "Photo",
    "YoloV4Tiny",
    "read_photo",
    "sample_photos",
    "yolov4tiny_files",
]
