"""harness.captured: files of tensors are read bit for bit, executing nothing, and whatever else they are is one line."""

# ruff: noqa: SIM300 - the expected value stands first

import io
import json
import math
import os
import pickle
import zipfile

import pytest
import torch

from harness import captured
from harness.captured import MAX_HEADER, MAX_PARAMS, params_of, read
from harness.case import MAX_STORED_BYTES, CaseError
from tests.harness.test_corpus import sparing
from tests.harness.test_stored import DTYPES, bits, made

NAMES = {name: short for short, name in captured._DTYPES.items()}


def safetensors(path, tensors, *, metadata=None, pad=0):
    """Write such a file, from its description: an 8-byte length, a JSON header, raw bytes."""
    header, data = {}, b""
    for name, x in tensors.items():
        raw = bytes(x.contiguous().reshape(-1).view(torch.uint8).tolist())
        slot = {
            "dtype": NAMES[str(x.dtype)[6:]],
            "shape": list(x.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        header[name] = slot
        data += raw
    if metadata is not None:
        header["__metadata__"] = metadata
    return with_header(path, json.dumps(header).encode() + b" " * pad, data)


def with_header(path, header, data=b""):
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def saved(path, what, **more):
    torch.save(what, path, **more)
    return path


def refused(path, words=""):
    """The line; nothing large is allocated before it is said."""
    with sparing(), pytest.raises(CaseError) as caught:
        read(path)
    message = str(caught.value)
    assert 1 == len(message.splitlines()), message
    assert message.startswith(f"{path}: "), message
    assert words in message
    return message


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("write", [safetensors, saved])
def test_every_dtype_comes_back_bit_for_bit(tmp_path, write, dtype):
    """From both sorts of file, NaN payloads included; an empty tensor too."""
    x, empty = made(dtype, (3, 7)), made(dtype, (0, 3))
    found = read(write(tmp_path / "call", {"logits": x, "out": empty}))
    assert bits(x) == bits(found.tensors["logits"])
    assert (x.dtype, x.shape) == (found.tensors["logits"].dtype, found.tensors["logits"].shape)
    assert (empty.dtype, empty.shape) == (found.tensors["out"].dtype, found.tensors["out"].shape)


def test_torch_keeps_layouts_and_shared_storages(tmp_path):
    """Strides, offsets, expanded dimensions, and who shares with whom."""
    base = torch.arange(60.0)
    given = {
        "q": base.as_strided((3, 4), (10, 2), 5),
        "k": base[7:12],
        "v": torch.ones(1, 3).expand(4, 3),
        "out": torch.zeros(2),
    }
    found = read(saved(tmp_path / "call.pt", given)).tensors
    for name, x in given.items():
        assert (x.stride(), x.storage_offset(), x.tolist()) == (
            found[name].stride(),
            found[name].storage_offset(),
            found[name].tolist(),
        )
    places = {name: x.untyped_storage().data_ptr() for name, x in found.items()}
    assert places["q"] == places["k"]
    assert 3 == len(set(places.values()))


def test_a_parameter_of_a_module_is_a_tensor(tmp_path):
    """And what needs a gradient; None stands for one that was not given."""
    made = torch.nn.Parameter(torch.ones(2))
    found = read(saved(tmp_path / "call.pt", {"k": made, "v": torch.ones(3, requires_grad=True), "out": None})).tensors
    assert ["k", "v"] == sorted(found)
    assert not found["k"].requires_grad


def test_params_come_along(tmp_path):
    """Under "params" of the dict, or as JSON in the metadata; what is not finite becomes a word, as cases have it."""
    params = {"k": 3, "form": "new", "soft": 1.5, "no": None, "yes": True, "list": [1, 2]}
    found = read(saved(tmp_path / "a", {"q": torch.ones(1), "params": {**params, "s": math.inf, "n": [-math.inf]}}))
    assert {**params, "s": "inf", "n": ["-inf"]} == found.params
    assert ["q"] == list(found.tensors)
    metadata = {"params": json.dumps(params), "format": "pt"}
    assert params == read(safetensors(tmp_path / "b", {"q": torch.ones(1)}, metadata=metadata)).params
    (tmp_path / "c.json").write_text(json.dumps(params))
    assert params == params_of(tmp_path / "c.json")


class Evil:
    """Unpickling one runs a command."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


PROTOCOLS = [2, 4, 5]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("where", [lambda x: x, lambda x: {"q": x}, lambda x: {"params": {"k": x}}, lambda x: [{1: x}]])
def test_a_pickled_class_is_refused_by_name_and_never_made(tmp_path, monkeypatch, protocol, where):
    """In any place, of any protocol; torch is not even asked."""
    path = saved(tmp_path / "call.pt", where(Evil(tmp_path / "was here")), pickle_protocol=protocol)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("asked torch"))
    message = refused(path, "its pickle names")
    assert "never code" in message
    assert not (tmp_path / "was here").exists()


def test_torch_itself_is_asked_for_weights_alone(tmp_path, monkeypatch):
    """Should the look at the pickle ever let something through."""
    path = saved(tmp_path / "call.pt", {"q": Evil(tmp_path / "was here")})
    monkeypatch.setattr(captured, "_look_at_pickle", lambda _: None)
    refused(path, "torch.load refuses it")
    assert not (tmp_path / "was here").exists()


def edited(tmp_path, change, what=None):
    """A torch.save file whose pickle was changed."""
    buffer = io.BytesIO()
    torch.save(what or {"logits": torch.arange(12.0).view(3, 4)[:, :3]}, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(tmp_path / "call.pt", "w") as new:
        for record in old.infolist():
            data = old.read(record)
            new.writestr(record.filename, change(data) if record.filename.endswith("data.pkl") else data)
    return tmp_path / "call.pt"


def replaced(old, new):
    def change(data):
        assert old in data
        return data.replace(old, new, 1)

    return change


SHAPE = b"K\x03K\x03\x86"
HOSTILE_PICKLES = {
    "negative size": replaced(SHAPE, b"J\xff\xff\xff\xffK\x03\x86"),
    "2^62 elements": replaced(SHAPE, b"\x8a\x08" + (1 << 62).to_bytes(8, "little") + b"K\x03\x86"),
    "2^40 elements": replaced(SHAPE, b"\x8a\x06" + (1 << 40).to_bytes(6, "little") + b"K\x03\x86"),
    "beyond its storage": replaced(SHAPE, b"K\x04K\x04\x86"),
    "torn": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "text": lambda data: b"hello",
    "deep": lambda data: b"\x80\x02" + b"]" * 5_000 + b"a" * 4_999 + b".",
    "bytearray": lambda data: (
        b"\x80\x02c__builtin__\nbytearray\n\x8a\x06" + (1 << 40).to_bytes(6, "little") + b"\x85R."
    ),
    "class": lambda data: b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R.",
    "class of another protocol": lambda data: b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",
    "instance": lambda data: b"(iposix\nsystem\n.",
    "quantized": lambda data: b"\x80\x02ctorch._utils\n_rebuild_qtensor\n.",
}


@pytest.mark.parametrize("what", HOSTILE_PICKLES)
def test_a_hostile_pickle_is_one_line(tmp_path, what):
    """Nothing of the sizes that it names is allocated, and no code of it runs."""
    refused(edited(tmp_path, HOSTILE_PICKLES[what]))


def test_the_unedited_file_is_read(tmp_path):
    """So that each of these is refused for its edit."""
    assert (3, 3) == tuple(read(edited(tmp_path, lambda data: data)).tensors["logits"].shape)


@pytest.mark.parametrize("cut", [0, 1, 4, 9, 100, 300, -200, -22, -1])
def test_a_torn_torch_file_is_one_line(tmp_path, cut):
    """Wherever it ends."""
    path = saved(tmp_path / "call.pt", {"logits": torch.ones(50)})
    path.write_bytes(path.read_bytes()[:cut])
    refused(path)


def compressed(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}.")
        archive.writestr("a/data/0", b"\0" * (64 << 20))


def no_pickle(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "x")


def large_pickle(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"]" * (MAX_HEADER + 1))


def link_to(target):
    return lambda path: path.symlink_to(target)


OTHER_FILES = {
    "gone": (lambda path: None, "No such file"),
    "folder": (lambda path: path.mkdir(), "Is a directory"),
    "endless": (link_to("/dev/zero"), "device or pipe"),
    "pipe": (os.mkfifo, "device or pipe"),
    "empty": (lambda path: path.write_bytes(b""), "neither"),
    "text": (lambda path: path.write_text("logits = 3, and so on"), "neither"),
    "zeros": (lambda path: path.write_bytes(bytes(1000)), "neither"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps([1])), "a pickle"),
    "old torch": (
        lambda path: torch.save({"q": torch.ones(1)}, path, _use_new_zipfile_serialization=False),
        "before torch 1.6",
    ),
    "zip": (no_pickle, "not of torch.save"),
    "zip bomb": (compressed, "not of torch.save"),
    "large pickle": (large_pickle, "a pickle of"),
    "a list": (lambda path: torch.save([torch.ones(1)], path), "holds a list"),
    "a tensor": (lambda path: torch.save(torch.ones(1), path), "holds a Tensor"),
    "a number": (lambda path: torch.save({"k": 5}, path), "'k' is a int, no tensor"),
    "a name": (lambda path: torch.save({3: torch.ones(1)}, path), "3 is a Tensor"),
    "params": (lambda path: torch.save({"params": 5}, path), "'params' are a int"),
    "a tensor of params": (lambda path: torch.save({"params": {"k": torch.ones(1)}}, path), "'k' is a Tensor"),
    "a dict of params": (lambda path: torch.save({"params": {"k": {}}}, path), "'k' is a dict"),
    "a name of params": (lambda path: torch.save({"params": {1: 2}}, path), "called 1"),
    "complex": (lambda path: torch.save({"q": torch.ones(2, dtype=torch.complex64)}, path), "pickle names"),
    "sparse": (lambda path: torch.save({"q": torch.eye(2).to_sparse()}, path), "pickle names"),
    "meta": (lambda path: torch.save({"q": torch.ones(2, device="meta")}, path), "pickle names"),
    "rank": (lambda path: torch.save({"q": torch.ones((1,) * 9)}, path), "9 dimensions"),
}


@pytest.mark.parametrize("what", OTHER_FILES)
def test_another_file_is_one_line(tmp_path, what):
    """Whatever lies there."""
    make, words = OTHER_FILES[what]
    make(tmp_path / "call")
    refused(tmp_path / "call", words)


def slot(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


HEADERS = {
    "no object": b"[1]   ",
    "torn": b'{"q": {"dtype": "F32", "sha',
    "not text": b'{"\xff\xfe": 1}',
    "deep": b'{"q": ' + b"[" * 100_000,
    "number": b'{"q": 3}',
    "unknown field": {"q": slot(stride=[1])},
    "missing field": {"q": {"dtype": "F32", "shape": [2]}},
    "dtype": {"q": slot("F8_E4M3", (8,))},
    "negative size": {"q": slot(shape=(-2,))},
    "2^62 elements": {"q": slot(shape=(1 << 31, 1 << 31))},
    "beyond the file": {"q": slot(offsets=(0, 16), shape=(4,))},
    "far beyond": {"q": slot(offsets=(0, 1 << 39), shape=(1 << 37,))},
    "backwards": {"q": slot(offsets=(8, 0))},
    "another size": {"q": slot(shape=(3,))},
    "overlapping": {"q": slot(), "k": slot()},
    "a hole": {"q": slot("U8", (4,), (4, 8))},
    "bytes left": {"q": slot("U8", (4,), (0, 4))},
    "metadata": {"q": slot(), "__metadata__": {"a": 1}},
    "params": {"q": slot(), "__metadata__": {"params": "[1]"}},
    "many": {f"t{i}": slot("U8", (0,), (0, 0)) for i in range(65)},
    "rank": {"q": slot(shape=(1,) * 8 + (2,))},
}


@pytest.mark.parametrize("what", HEADERS)
def test_a_hostile_header_is_one_line(tmp_path, what):
    """Before any of its tensors is read."""
    header = HEADERS[what]
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = with_header(tmp_path / "call", b"{" + text if text[:1] != b"{" else text, b"12345678")
    refused(path)


def test_a_truncated_header_is_one_line(tmp_path):
    """A length that the file has not, or of gigabytes that it has."""
    whole = safetensors(tmp_path / "call", {"q": torch.ones(20)}).read_bytes()
    for cut in (8, 9, 40, len(whole) - 1):
        (tmp_path / "torn").write_bytes(whole[:cut])
        refused(tmp_path / "torn")
    for length in (1 << 40, (1 << 64) - 1, MAX_HEADER + 1):
        (tmp_path / "long").write_bytes(length.to_bytes(8, "little") + b"{")
        os.truncate(tmp_path / "long", 100 << 20)
        refused(tmp_path / "long", f"at most {MAX_HEADER}")


def test_a_tensor_beyond_the_limit_is_not_read(tmp_path):
    """The file is as large as it says."""
    size = MAX_STORED_BYTES + 4
    path = with_header(tmp_path / "call", json.dumps({"q": slot(shape=(size // 4,), offsets=(0, size))}).encode())
    os.truncate(path, path.stat().st_size + size)
    refused(path, f"at most {MAX_STORED_BYTES}")


def test_a_header_of_any_length_is_read(tmp_path):
    """Tensors need not start at a multiple of their element."""
    for pad in range(8):
        found = read(safetensors(tmp_path / "call", {"q": torch.arange(4.0)}, pad=pad))
        assert [0, 1, 2, 3] == found.tensors["q"].tolist()


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b"3", b"\xff", b'{"a": {}}', b'{"a": [[1]]}', b'{"a": NaN}', b'{"a":' + b"[" * 100_000],
)
def test_other_params_are_one_line(tmp_path, text):
    """Which names the file."""
    path = tmp_path / "params.json"
    path.write_bytes(text)
    with sparing(4 << 20), pytest.raises(CaseError, match=r"params\.json: ") as caught:
        params_of(path)
    assert 1 == len(str(caught.value).splitlines())


def test_params_of_100_megabytes_are_not_read(tmp_path):
    """Their size is enough."""
    path = tmp_path / "params.json"
    path.touch()
    os.truncate(path, 100 << 20)
    with sparing(), pytest.raises(CaseError, match=str(MAX_PARAMS)):
        params_of(path)
