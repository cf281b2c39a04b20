"""From photos to detections and counts: the embedded detector, other detectors, and what they need of an image."""

from tallybox.photos.images import Photo, read_photo
from tallybox.photos.picodet import PicoDet
from tallybox.photos.shipped import sample_photos

__all__ = ["Photo", "PicoDet", "read_photo", "sample_photos"]
