import os
import subprocess
import sys
from io import BytesIO, StringIO

import numpy as np
import pytest
import torch
from PIL import Image

from tallybox.errors import InputError, TallyboxError
from tallybox.photos import images, read_photo, sample_photos
from tallybox.photos.images import MAX_PIXELS
from tests.support.photos import claiming, encoded, gradient

TURNS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,  # undone by turning the other way
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def pixels(path) -> np.ndarray:
    photo = read_photo(path)
    assert photo.image.mode == "RGB"
    assert photo.size_wh == photo.image.size
    return np.asarray(photo.image).astype(int)


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "tiff"])
def test_photos_are_turned_upright(tmp_path, orientation, kind):
    upright = gradient(48, 32)
    turn = TURNS[orientation]
    held = upright if turn is None else upright.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"photo.{kind}"
    held.save(path, exif=exif, **({"quality": 95} if kind in ("jpeg", "webp") else {}))
    found = pixels(path)
    assert found.shape == (32, 48, 3)
    assert np.abs(found - np.asarray(upright)).mean() < 4


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("L", "png"), ("L", "jpeg"), ("1", "png"), ("P", "gif"), ("P", "png"), ("CMYK", "jpeg"), ("CMYK", "tiff")],
)
def test_every_mode_becomes_rgb(tmp_path, mode, kind):
    original = gradient(40, 30)
    path = tmp_path / f"photo.{kind}"
    original.convert(mode).save(path)
    found = pixels(path)
    expected = np.asarray(original.convert(mode).convert("RGB")).astype(int)
    assert np.abs(found - expected).mean() < 6


def test_what_is_transparent_is_white(tmp_path):
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    image.putpixel((0, 0), (10, 20, 30, 255))
    image.save(tmp_path / "a.png")
    found = pixels(tmp_path / "a.png")
    assert found[0, 0].tolist() == [10, 20, 30]
    assert found[3, 3].tolist() == [255, 255, 255]
    Image.new("LA", (1, 1), (0, 0)).save(tmp_path / "la.png")
    assert pixels(tmp_path / "la.png").tolist() == [[[255, 255, 255]]]
    palette = Image.new("P", (2, 1))
    palette.putpalette([200, 0, 0, 0, 200, 0])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "p.png", transparency=0)
    assert pixels(tmp_path / "p.png")[0].tolist() == [[255, 255, 255], [0, 200, 0]]


@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_sixteen_bits_keep_their_shades(tmp_path, kind):
    shades = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    Image.fromarray(shades).save(tmp_path / f"deep.{kind}")
    assert np.abs(pixels(tmp_path / f"deep.{kind}")[..., 0].ravel() - np.arange(256)).max() <= 1


def test_floating_point_is_read_as_shares(tmp_path):
    Image.fromarray(np.array([[0.0, 0.5, 1.0, np.nan]], np.float32)).save(tmp_path / "f.tiff")
    assert pixels(tmp_path / "f.tiff")[0, :, 0].tolist() == [0, 128, 255, 0]


@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_large_photos_are_reduced_by_whole_numbers_and_keep_their_size(tmp_path, kind):
    gradient(1800, 1200).save(tmp_path / f"large.{kind}")
    photo = read_photo(tmp_path / f"large.{kind}", reduced_to=400)
    assert photo.size_wh == (1800, 1200)
    assert 400 <= photo.image.width <= 900
    assert photo.image.width * 2 == pytest.approx(photo.image.height * 3, abs=3)
    whole = gradient(1800, 1200).resize(photo.image.size)
    assert np.abs(np.asarray(photo.image).astype(int) - np.asarray(whole)).mean() < 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "unsupported image format"),
        (b"hello", "unsupported image format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "unsupported image format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "unsupported image format"),
        (encoded(gradient(300, 300), "JPEG")[:900], "Cannot read"),
    ],
)
def test_what_is_no_photo_is_one_line_that_names_the_file(tmp_path, content, said):
    path = tmp_path / "bad.jpg"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as raised:
        read_photo(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("side", [20_001, 65_000])
def test_a_decompression_bomb_is_refused_before_it_is_unpacked(tmp_path, side):
    path = tmp_path / "bomb.png"
    path.write_bytes(claiming(side))
    with pytest.raises(InputError, match="pixels") as raised:
        read_photo(path)
    assert side * side > MAX_PIXELS
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "P", "1", "CMYK", "I;16", "F"])
@pytest.mark.parametrize("reduced_to", [None, 20])
def test_a_large_photo_is_converted_in_bands_to_the_same_pixels(tmp_path, monkeypatch, mode, reduced_to):
    values = np.random.default_rng(3).integers(0, 256, (61, 83, 3), dtype=np.uint8)
    image = Image.fromarray(values)
    if mode in ("I;16", "F"):
        image = Image.fromarray(values[..., 0].astype(np.uint16 if mode == "I;16" else np.float32) * 200)
    else:
        image = image.convert(mode)
    path = tmp_path / "photo.tiff"
    image.save(path)
    whole = read_photo(path).image
    monkeypatch.setattr(images, "LARGE_PIXELS", 100)
    monkeypatch.setattr(images, "BAND_PIXELS", 1000)
    photo = read_photo(path, reduced_to=reduced_to)
    expected = whole if reduced_to is None else whole.reduce(4)
    assert photo.image.size == expected.size
    assert photo.size_wh == (83, 61)
    np.testing.assert_allclose(np.asarray(photo.image, int), np.asarray(expected, int), atol=1)


@pytest.mark.slow
def test_six_photos_of_99_million_pixels_take_the_memory_of_one(tmp_path):
    for mode in ("RGB", "P", "RGBA", "LA", "L", "1"):
        Image.new(mode, (10_000, 9_900)).save(tmp_path / f"{mode}.png")
    code = (
        "import resource, sys; from tallybox.cli import cli\n"
        "memory = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "cli(['count', sys.argv[1]], standalone_mode=False); before = memory()\n"
        "cli(['count', *sys.argv[2:]], standalone_mode=False); print(memory() - before)"
    )
    paths = [sample_photos()[0], *sorted(tmp_path.iterdir())]
    several_threads = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", code, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=several_threads)
    assert int(done.stdout.splitlines()[-1]) < 700  # MB; 400 are one photo, and it was 2,000


def test_heic_is_read_where_its_reader_is_installed(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    original = gradient(64, 48)
    path = tmp_path / "photo.heic"
    heif.from_pillow(original).save(path, quality=95)
    assert read_photo(path.read_bytes()).size_wh == (64, 48)
    assert np.abs(pixels(path) - np.asarray(original).astype(int)).mean() < 6


def test_a_pipe_is_refused_before_anything_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "photo.jpg")
    with pytest.raises(InputError, match=r"photo\.jpg is a pipe"):
        read_photo(tmp_path / "photo.jpg")


def test_photos_in_memory_are_read_like_files(tmp_path):
    path = tmp_path / "photo.png"
    gradient(64, 48).save(path)
    whole = read_photo(path)
    array = np.asarray(whole.image)
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    with path.open("rb") as file, Image.open(path) as image:
        for source in (str(path), path.read_bytes(), file, BytesIO(path.read_bytes()), image, array, array[:], tensor):
            photo = read_photo(source)
            assert photo.size_wh == (64, 48)
            assert photo.image.tobytes() == whole.image.tobytes()
    turned = gradient(64, 48)
    turned.getexif()[0x0112] = 6
    assert read_photo(encoded(turned, "JPEG", exif=turned.getexif())).size_wh == (48, 64)


@pytest.mark.parametrize(
    "source",
    [
        *(None, 7, ["a.jpg"], StringIO("text"), b"", b"no photo", ""),
        *(np.zeros((4, 4, 3)), *(np.zeros(shape, np.uint8) for shape in ((4, 4), (3, 4, 4), (0, 4, 3)))),
        *(torch.zeros(3, 4, 4), torch.zeros(4, 4, 3, dtype=torch.uint8), Image.new("RGB", (0, 4))),
    ],
)
def test_anything_else_in_memory_is_one_line(source):
    with pytest.raises(TallyboxError) as raised:
        read_photo(source)
    assert "\n" not in str(raised.value)
