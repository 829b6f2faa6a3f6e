"""Pictures of every kind that clients send, right or refused with a reason."""

from __future__ import annotations

import base64
import io
import random
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from bident.zoo.models import pictures
from bident.zoo.models.pictures import Picture, PictureError
from bident.zoo.photos import photo_file

BILINEAR = Image.Resampling.BILINEAR
LIMIT = 64_000_000


def encode(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def whole(data, size=None):
    picture = Picture(data, LIMIT)
    upright = (picture.width, picture.height)
    return picture.middle(*upright, size or upright, BILINEAR)


def photo(width=96, height=64):
    return Image.open(io.BytesIO(photo_file("astronaut.png"))).convert("RGB").resize((width, height))


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P"])
def test_modes_without_transparency(mode):
    image = photo().convert(mode)
    np.testing.assert_array_equal(whole(encode(image)), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpeg_modes(mode):
    image = photo().convert(mode)
    data = encode(image, "JPEG", quality=95)
    np.testing.assert_array_equal(whole(data), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    assert np.abs(whole(data).astype(int) - np.asarray(image.convert("RGB"))).mean() < 4


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_shows_white(mode):
    image = photo().convert(mode)
    image.putalpha(Image.new("L", image.size, 0))
    image.paste(photo().convert(mode).crop((0, 0, 48, 64)), (0, 0))
    seen = whole(encode(image))
    assert (seen[:, 48:] == 255).all()
    np.testing.assert_array_equal(seen[:, :48], np.asarray(photo().convert(mode).convert("RGB"))[:, :48])


def test_a_transparent_colour_of_a_palette_shows_white():
    image = Image.new("P", (4, 2), 0)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    seen = whole(encode(image, transparency=0))
    assert seen[0, 1].tolist() == [200, 100, 50]
    assert seen[1, 1].tolist() == [255, 255, 255]


def test_16_bits_of_grey_are_scaled_not_cut_off():
    levels = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(2, 0)
    seen = whole(encode(Image.fromarray(levels)))
    np.testing.assert_array_equal(seen[0, :, 1], levels[0] >> 8)


def test_16_bits_of_colour():
    rows = np.zeros((2, 3), ">u2")
    rows[:] = (0x8000, 0xFFFF, 0x0100)
    lines = b"".join(b"\0" + rows.tobytes() for _ in range(2))
    seen = whole(png(2, 2, depth=16, colour=2, data=zlib.compress(lines)))
    assert seen[1, 1].tolist() == [0x80, 0xFF, 0x01]


def png(width, height, *, depth=8, colour=2, data=b"", after=()):
    """A PNG by hand, for headers that no encoder writes."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", data), *after, (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(96, 64), (40, 30)])
def test_pictures_are_turned_upright(orientation, size):
    """Against Pillow's own turning, of the decoded picture."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(photo(), "JPEG", exif=exif, quality=95)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    target = size if upright.width > upright.height else size[::-1]
    picture = Picture(data, LIMIT)
    assert (picture.width, picture.height) == upright.size
    seen = picture.middle(*upright.size, target, BILINEAR)
    assert seen.shape == (target[1], target[0], 3)
    expected = np.asarray(upright.resize(target, BILINEAR))
    assert np.abs(seen.astype(int) - expected).mean() < 0.5


@pytest.mark.parametrize("late", [False, True])
def test_how_a_png_was_held_is_known_without_its_pixels(late, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(photo(), exif=exif)
    if late:
        lines = b"".join(b"\0" + bytes(3 * 96) for _ in range(64))
        chunk = exif.tobytes().removeprefix(b"Exif\0\0")
        data = png(96, 64, data=zlib.compress(lines), after=[(b"eXIf", chunk)])
    with monkeypatch.context() as patch:
        patch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("pixels were decoded"))
        picture = Picture(data, LIMIT)
    assert (picture.width, picture.height) == (64, 96)
    assert picture.middle(64, 96, (64, 96), BILINEAR).shape == (96, 64, 3)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize(
    "exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\x01\0"]
)
def test_damaged_notes_about_a_picture_do_not_matter(exif):
    assert whole(encode(photo(), "JPEG", exif=exif)).shape == (64, 96, 3)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (10000, 2), (2, 10000), (1, 1000)])
def test_extreme_proportions(width, height):
    image = Image.new("RGB", (width, height), (10, 200, 30))
    for data in (encode(image), encode(image, "JPEG", quality=95)):
        assert np.abs(whole(data, (64, 48)).astype(int) - [10, 200, 30]).max() <= 3
        assert Picture(data, LIMIT).middle(0.5, 0.5, (8, 8), BILINEAR).shape == (8, 8, 3)


@pytest.mark.parametrize("side", [60, 64, 100, 128])
def test_decoding_a_jpeg_smaller_looks_the_same(side, monkeypatch):
    """Against decoding it whole and scaling afterwards: about a grey level of difference."""
    decoded = []
    monkeypatch.setattr(pictures, "_rgb", lambda image, spare: decoded.append(image.size) or image)
    data = encode(photo(512, 512), "JPEG", quality=90)
    expected = np.asarray(Image.open(io.BytesIO(data)).resize((side, side), BILINEAR), np.int16)
    difference = np.abs(whole(data, (side, side)) - expected)
    assert decoded[0][0] <= 256
    assert difference.mean() < 1.5
    assert np.percentile(difference, 99) <= 8


def test_the_middle_is_the_middle():
    image = Image.new("RGB", (100, 60), "black")
    image.paste("white", (40, 20, 60, 40))
    for data in (encode(image), encode(image.resize((1600, 960), Image.Resampling.NEAREST), "JPEG", quality=95)):
        picture = Picture(data, LIMIT)
        unit = picture.width / 100
        inside = picture.middle(18 * unit, 18 * unit, (32, 32), BILINEAR)
        around = picture.middle(40 * unit, 40 * unit, (40, 40), BILINEAR)
        assert inside.min() > 240
        assert abs(around.mean() - 255 / 4) < 4
        np.testing.assert_allclose(around, around[::-1, ::-1], atol=40)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "neither JPEG nor PNG, or cut short: 0 bytes"),
        (b"hello", r"5 bytes that begin with b'hello'"),
        (b"/9j/", "its 3 bytes begin as those of a JPEG, but the header is damaged or cut short"),
        (b"iVBORw0KGgo", "it begins as base64 text, and cannot be read as that: Incorrect padding"),
        (b"/9j/4AAQ-not base64-", "it begins as base64 text, and cannot be read as that"),
        (b"data:image/png;base64", "neither JPEG nor PNG, or cut short: 0 bytes"),
        (b"\xff\xd8\xff", "its 3 bytes begin as those of a JPEG, but the header is damaged or cut short"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rJUNK" + b"x" * 17, "its 33 bytes begin as those of a PNG, but the header is d"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "neither JPEG nor PNG"),
    ],
)
def test_what_is_no_picture(data, reason):
    with pytest.raises(PictureError, match=reason):
        Picture(data, LIMIT)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("head", ["", "data:image/any;base64,"])
@pytest.mark.parametrize("write", [base64.b64encode, base64.encodebytes])
def test_base64_text_is_the_file_it_stands_for(kind, head, write):
    """JSON cannot hold the bytes of a file; some programs break such text into lines."""
    data = encode(photo(), kind)
    np.testing.assert_array_equal(whole(head.encode() + write(data)), whole(data))


@pytest.mark.parametrize(("width", "height"), [(0, 0), (0, 5), (7, 0)])
def test_a_png_without_pixels_is_called_that(width, height):
    with pytest.raises(PictureError, match=f"it is a PNG of {width} x {height} pixels: an empty picture"):
        Picture(png(width, height, data=zlib.compress(b"")), LIMIT)


def marked(mode):
    """A picture of an odd size, much larger than needed, whose middle and edges can be told apart."""
    image = photo(1501, 1103)
    image.paste((250, 20, 20), (0, 0, 40, 1103))
    image.paste((20, 20, 250), (1461, 0, 1501, 1103))
    image = image.convert(mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "1"])
@pytest.mark.parametrize(("part", "size"), [((1501, 1103), (64, 47)), ((965, 965), (48, 48)), ((20, 20), (40, 40))])
def test_colours_converted_in_parts_are_those_of_the_whole(mode, part, size):
    image = marked(mode)
    whole_image = pictures._coloured(image)
    left, top = (1501 - part[0]) / 2, (1103 - part[1]) / 2
    expected = np.asarray(whole_image.resize(size, BILINEAR, box=(left, top, left + part[0], top + part[1])), np.int16)
    difference = np.abs(Picture(encode(image), LIMIT).middle(*part, size, BILINEAR) - expected)
    assert difference.mean() < 1.5
    assert np.percentile(difference, 99) <= 8


@pytest.mark.parametrize("mode", ["L", "CMYK"])
@pytest.mark.parametrize("side", [16, 64])
def test_large_jpegs_of_other_colours(mode, side):
    """Decoded at a fraction of their size first (at an eighth at the least), and made smaller again."""
    image = photo(1501, 1103).convert(mode)
    expected = np.asarray(image.convert("RGB").resize((side, side), BILINEAR), np.int16)
    difference = np.abs(whole(encode(image, "JPEG", quality=95), (side, side)) - expected)
    assert difference.mean() < 2.5


def test_a_large_transparent_picture_is_never_held_twice(tmp_path):
    """In a process of its own, for its peak: four bytes for each of the picture's 36 million pixels, and some more."""
    (tmp_path / "large.png").write_bytes(encode(Image.new("RGBA", (6000, 6000), (10, 20, 30, 128)), compress_level=1))
    program = (
        "import resource, sys\n"
        "from PIL import Image\n"
        "from bident.zoo.models.pictures import Picture\n"
        "picture = Picture(open(sys.argv[1], 'rb').read(), 64_000_000)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "seen = picture.middle(6000, 6000, (224, 224), Image.Resampling.BICUBIC)\n"
        "assert seen[0, 0].tolist() == [132, 137, 142], seen[0, 0]\n"
        "unit = 1 if sys.platform == 'darwin' else 1024\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "large.png"], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) < 6 * 36_000_000


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF"])
def test_only_two_decoders_see_what_clients_send(kind):
    with pytest.raises(PictureError, match="neither JPEG nor PNG"):
        Picture(encode(photo(), kind), LIMIT)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_cut_short(kind, share):
    data = encode(photo(320, 240), kind)
    picture = Picture(data[: int(len(data) * share)], LIMIT)
    with pytest.raises(PictureError, match="damaged"):
        picture.middle(320, 240, (320, 240), BILINEAR)


@pytest.mark.parametrize(("width", "height"), [(60_000, 60_000), (2**31 - 1, 2**31 - 1), (9000, 9000)])
def test_a_bomb_is_refused_by_its_header(width, height):
    with pytest.raises(PictureError, match="pixels"):
        Picture(png(width, height, data=b"x"), LIMIT)


def test_mangled_files_are_refused_or_shown_never_anything_else():
    generator = random.Random(3)
    for kind in ("JPEG", "PNG"):
        for _ in range(400):
            data = bytearray(encode(photo(32, 24).convert(generator.choice(["RGB", "L"])), kind))
            for _ in range(generator.choice([1, 3, 20])):
                data[generator.randrange(len(data))] = generator.randrange(256)
            del data[generator.randrange(1, len(data)) if generator.random() < 0.2 else len(data) :]
            try:
                picture = Picture(bytes(data), LIMIT)
                seen = picture.middle(picture.width, picture.height, (16, 16), BILINEAR)
            except PictureError:
                continue
            assert seen.shape == (16, 16, 3)
            assert seen.dtype == np.uint8
