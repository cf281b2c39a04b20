import numpy as np
import pytest

from tallybox import read_detections
from tallybox.detections.box_checks import check_in_image, check_not_corners
from tallybox.detections.detections import Detections
from tallybox.detections.parquet import write_parquet
from tallybox.errors import InputError
from tests.support.detection_sets import coco_results, write_json
from tests.support.shared_data import data_folder

FILES = ("picodet_train", "picodet_val", "yolov4tiny_train", "yolov4tiny_val")
# Objects of 60 x 40 pixels all over a photo of 640 x 480.
CORNERS = np.array([[x, y, x + 60, y + 40] for x in range(0, 560, 80) for y in range(0, 420, 60)], np.float32)
MISREAD = np.concatenate((CORNERS[:, :2], CORNERS[:, :2] + CORNERS[:, 2:]), axis=1)


def image_of(boxes, image_id=7, size=(640, 480)):
    return Detections(boxes, [0.5] * len(boxes), [1] * len(boxes), size, image_id)


def write_csv(path, boxes, size):
    rows = "".join(f"7,1,{','.join(map(str, box))},0.5,{size[0]},{size[1]}\n" for box in boxes)
    path.write_text("image_id,category_id,x1,y1,x2,y2,score,width,height\n" + rows)
    return path


def test_coco_results_whose_boxes_are_corners_are_refused(tmp_path):
    wrong = write_json(tmp_path / "wrong.json", coco_results([image_of(MISREAD)]))
    with pytest.raises(
        InputError, match=r"wrong.json: boxes must be left, top, width, height, but all 49 .* x1 y1 x2 y2"
    ):
        list(read_detections(wrong))
    right = write_json(tmp_path / "right.json", coco_results([image_of(CORNERS)]))
    assert [len(image) for image in read_detections(right)] == [49]


def test_boxes_far_outside_the_stated_photo_are_refused_whatever_the_format(tmp_path):
    far = [[10, 10, 50, 90], [5000, 10, 5040, 90]]
    write_parquet([image_of(far)], tmp_path / "far.parquet")
    for path in (write_csv(tmp_path / "far.csv", far, (640, 480)), tmp_path / "far.parquet"):
        with pytest.raises(
            InputError,
            match=rf"{path}, image 7: .* \[5000, 10, 5040, 90\] lies far outside; check the size and the unit",
        ):
            list(read_detections(path))
    write_parquet([image_of(MISREAD)], tmp_path / "misread.parquet")
    for path in (write_csv(tmp_path / "misread.csv", MISREAD, (640, 480)), tmp_path / "misread.parquet"):
        with pytest.raises(InputError, match="look like x1 y1 x2 y2"):
            list(read_detections(path))


def test_parquet_without_sizes_is_checked_before_its_images_are_used(tmp_path):
    write_parquet([image_of(MISREAD[:30], 1, None), image_of(MISREAD[30:], 2, None)], tmp_path / "wrong.parquet")
    with pytest.raises(InputError, match=r"wrong\.parquet: .* all 49 look like x1 y1 x2 y2"):
        next(read_detections(tmp_path / "wrong.parquet"))
    write_parquet([image_of(CORNERS, 1, None)], tmp_path / "right.parquet")
    assert [len(image) for image in read_detections(tmp_path / "right.parquet")] == [49]


def test_boxes_over_the_border_are_taken():
    check_in_image(np.array([[-300, -200, 900, 700], [600, 400, 800, 600]]), (640, 480), "image 7")
    check_in_image(CORNERS * 1000, None, "image 7")
    check_in_image(np.zeros((0, 4)), (640, 480), "image 7")
    check_not_corners(MISREAD[-19:], "a file of too few boxes to judge")


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_real_files_are_never_refused_and_their_corners_are(name):
    """Whole files, and files of each photo alone."""
    images = list(read_detections(data_folder("coco-count") / f"detections_{name}.json.gz"))
    refused = judged = 0
    for image in images:
        check_not_corners(image.boxes, "one photo")
        if len(image) >= 20:
            judged += 1
            try:
                check_not_corners(np.concatenate((image.boxes[:, :2], image.boxes[:, :2] + image.boxes[:, 2:]), 1), "")
            except InputError:
                refused += 1
    assert refused >= 0.97 * judged
