"""harness.stored: values in files beside an entry, bit for bit, and what else may lie there."""

# ruff: noqa: SIM300 - the expected value stands first

import hashlib
import os

import msgspec
import pytest
import torch
from msgspec.structs import replace

from harness import corpus, stored
from harness.case import MAX_STORED_BYTES, CaseError, Fill, Planted, Stored, View, validate
from harness.fill import make_bits
from harness.memory import Memory
from tests.harness.making import mask_case
from tests.harness.test_corpus import VERDICT, entry, everything, sparing

DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")


def made(dtype="float32", shape=(2, 5), kind="raw", seed=1):
    dtype = getattr(torch, dtype)
    return make_bits(Fill(kind, seed), dtype, shape, "cpu").view(dtype).view(shape)


def bits(x):
    return x.contiguous().view(torch.uint8).tolist()


def case_of(x, folder, **more):
    """A call whose logits are the tensor's values."""
    return mask_case(*x.shape, dtype=str(x.dtype)[6:], fill=Fill("file", file=stored.put(x, folder)), **more)


def files_of(folder):
    return [name for name in everything(folder) if name.endswith(".bin")]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_come_back_bit_for_bit(tmp_path, dtype):
    """Of any dtype, NaN payloads included; the file is the raw bytes, by their digest."""
    x = made(dtype, (3, 50))
    kept = stored.put(x, tmp_path)
    assert bits(x) == bits(stored.values(kept))
    (name,) = everything(tmp_path)
    data = (tmp_path / name).read_bytes()
    assert hashlib.sha256(data).hexdigest() + ".bin" == name == stored.name_of(kept)
    assert data == bytes(x.reshape(-1).view(torch.uint8).tolist())


def test_a_strided_tensor_is_stored_in_row_major_order(tmp_path):
    """Whatever its layout was."""
    y = torch.arange(24.0).view(4, 6).t()[1:, ::2]
    assert y.tolist() == stored.values(stored.put(y, tmp_path)).tolist()


def test_a_call_has_the_values_in_any_layout(tmp_path):
    """Padded, misaligned, planted values over them; expanded rows share what is stored of their memory."""
    x = made(shape=(2, 5))
    memory = Memory(case_of(x, tmp_path, pitch=9, offset=4), "cpu")
    assert bits(x) == bits(memory.read("logits"))
    planted = Fill("file", planted=(Planted(3, 7.0),), file=stored.put(x, tmp_path))
    assert 7.0 == Memory(mask_case(fill=planted), "cpu").read("logits")[0, 3]
    row = Fill("file", file=stored.put(x[0], tmp_path))
    expanded = mask_case(fill=row)
    view = View(0, "float32", (2, 5), (0, 1))
    memory = Memory(replace(expanded, tensors={**expanded.tensors, "logits": view}), "cpu")
    assert bits(x[:1].expand(2, 5)) == bits(memory.read("logits"))


@pytest.mark.parametrize(
    ("shape", "rows", "columns"),
    [((2, 3), [0, 1], [0, 1, 2]), ((4, 5), [0, 1, 2, 0], [0, 1, 2, 3, 4]), ((1, 7), [0], [0, 1, 2, 3, 4, 0, 1])],
)
def test_another_size_takes_the_leading_values_or_repeats_them(tmp_path, shape, rows, columns):
    """Each dimension for itself: what a row keeps are its own first values."""
    x = torch.arange(15.0).view(3, 5)
    got = stored.fitted(stored.values(stored.put(x, tmp_path)), torch.float32, shape)
    assert [[x[r, c].item() for c in columns] for r in rows] == got.tolist()


def test_another_rank_or_dtype_is_made_too():
    """Elements in order, values rounded once: a reduction may try either."""
    x = torch.tensor([[1.0, 2.5], [65520.0, 4.0]])
    assert [1.0, 2.5, 65520.0, 4.0, 1.0] == stored.fitted(x, torch.float32, (5,)).tolist()
    assert [[1.0, 2.5], [float("inf"), 4.0]] == stored.fitted(x, torch.float16, (2, 2)).tolist()
    assert [] == stored.fitted(x, torch.float32, (0,)).tolist()
    assert (0, 2) == tuple(stored.fitted(x, torch.float32, (0, 2)).shape)


def test_an_entry_brings_its_values(tmp_path):
    """Written to a corpus, read there, written to another: no path is in the entry, and each corpus is whole by itself."""
    x = made(kind="specials")
    first = corpus.write(tmp_path / "a", entry(case_of(x, tmp_path)))
    text = first.read_text()
    assert str(tmp_path) not in text
    second = corpus.write(tmp_path / "b", corpus.read(first))
    assert text == second.read_text()
    assert ["top_k_mask_logits/mine/" + files_of(tmp_path)[0].rpartition("/")[2]] == files_of(tmp_path / "b")
    for name in everything(tmp_path / "a"):
        (tmp_path / "a" / name).unlink()
    assert bits(x) == bits(Memory(corpus.read(second).subject, "cpu").read("logits"))
    assert corpus.write(tmp_path / "b", corpus.read(second)) is None


def test_a_context_brings_its_values_too(tmp_path):
    """They are calls as well."""
    path = corpus.write(tmp_path / "a", entry(context=(case_of(made(), tmp_path),)))
    assert 1 == len(files_of(tmp_path / "a"))
    assert bits(made()) == bits(Memory(corpus.read(path).context[0], "cpu").read("logits"))


def test_where_values_lie_does_not_weigh(tmp_path):
    """Of two equal cases in two folders neither is the smaller."""
    (tmp_path / "a" / "long" / "name").mkdir(parents=True)
    here, there = case_of(made(), tmp_path), case_of(made(), tmp_path / "a" / "long" / "name")
    assert corpus.weight(here) == corpus.weight(there)
    assert stored.portable(here) == stored.portable(there)


def test_values_go_with_the_last_entry_that_needs_them(tmp_path):
    """Replaced by a smaller case, or removed; not before, and not while a file lies there that cannot be read."""
    big = case_of(made(shape=(20, 30)), tmp_path)
    other = corpus.write(tmp_path / "a", entry(big, replace(VERDICT, kind="wrong_nan"), reduced=False))
    path = corpus.write(tmp_path / "a", entry(big))
    corpus.write(tmp_path / "a", entry())
    assert 1 == len(files_of(tmp_path / "a"))
    torn = path.with_name("torn.json")
    torn.write_text("{")
    corpus.remove(tmp_path / "a", corpus.read(other).signature)
    assert 1 == len(files_of(tmp_path / "a"))
    torn.unlink()
    corpus.write(tmp_path / "a", entry(big, replace(VERDICT, kind="wrong_nan"), reduced=False))
    corpus.remove(tmp_path / "a", corpus.read(other).signature)
    assert [] == files_of(tmp_path / "a")


def test_a_reduced_case_of_stored_values_keeps_them(tmp_path):
    """A smaller view on the same file, through the corpus."""
    case = corpus.read(corpus.write(tmp_path / "a", entry(case_of(made(shape=(4, 9)), tmp_path)))).subject
    smaller = replace(case, tensors={"logits": View(0, "float32", (2, 3), (3, 1))}, storages=(24,))
    path = corpus.write(tmp_path / "b", entry(smaller))
    assert bits(made(shape=(4, 9))[:2, :3]) == bits(Memory(corpus.read(path).subject, "cpu").read("logits"))


def spoilt(tmp_path):
    path = corpus.write(tmp_path / "a", entry(case_of(made(shape=(20, 30)), tmp_path)))
    (name,) = files_of(tmp_path / "a")
    return path, tmp_path / "a" / name


def relink(file, target):
    file.unlink()
    file.symlink_to(target)


SPOILT = {
    "gone": (lambda file: file.unlink(), "No such file"),
    "short": (lambda file: file.write_bytes(file.read_bytes()[:-1]), "2399 bytes, and the values have 2400"),
    "huge": (lambda file: os.truncate(file, 1 << 40), "and the values have 2400"),
    "a link to a device": (lambda file: relink(file, "/dev/zero"), "symbolic link"),
    "a link to a file": (lambda file: relink(file, "/etc/passwd"), "symbolic link"),
    "a pipe": (lambda file: (file.unlink(), os.mkfifo(file)), "device or pipe"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "Is a directory"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_file_that_is_not_the_values_is_one_line(tmp_path, what):
    """When the entry is read, before any of it is; the line names the entry, the tensor and the file."""
    path, file = spoilt(tmp_path)
    spoil, words = SPOILT[what]
    spoil(file)
    with sparing(), pytest.raises(CaseError, match=words) as caught:
        corpus.read(path)
    assert 1 == len(str(caught.value).splitlines())
    assert all(word in str(caught.value) for word in (str(path), file.name)), caught.value


def test_altered_bytes_are_noticed_when_the_call_is_made(tmp_path):
    """By their digest: another size would have been seen before."""
    path, file = spoilt(tmp_path)
    case = corpus.read(path).subject
    data = bytearray(file.read_bytes())
    data[7] ^= 1
    file.write_bytes(data)
    with pytest.raises(CaseError, match="damaged"):
        Memory(case, "cpu")
    file.write_bytes(b"")
    with pytest.raises(CaseError, match="0 bytes"):
        Memory(case, "cpu")


def test_damaged_values_are_not_brought_along_and_are_replaced(tmp_path):
    """A copy fails as a whole; a good one mends what is there."""
    path, file = spoilt(tmp_path)
    good, entry_ = file.read_bytes(), corpus.read(path)
    file.write_bytes(b"x" * len(good))
    with pytest.raises(CaseError, match="damaged"):
        corpus.write(tmp_path / "b", entry_)
    assert [] == everything(tmp_path / "b")
    stored.put(made(shape=(20, 30)), file.parent)
    assert good == file.read_bytes()


D = "a" * 64
HOSTILE_FILES = {
    "no digest": (Stored("../../etc/passwd", "float32", (2, 5)), "no SHA-256 digest"),
    "digest with a line": (Stored(D + "\n", "float32", (2, 5)), "no SHA-256 digest"),
    "upper case": (Stored("A" * 64, "float32", (2, 5)), "no SHA-256 digest"),
    "dtype": (Stored(D, "float128", (2, 5)), "unknown dtype"),
    "other sort": (Stored(D, "int32", (2, 5)), "cannot be made"),
    "too large": (Stored(D, "float32", (MAX_STORED_BYTES // 4 + 1,)), f"there can be 1 to {MAX_STORED_BYTES}"),
    "2^62": (Stored(D, "float32", (1 << 31, 1 << 31)), "bytes of stored values"),
    "rank": (Stored(D, "float32", (1,) * 9), "bytes of stored values"),
    "empty": (Stored(D, "float32", (0, 5)), "0 bytes of stored values"),
}


@pytest.mark.parametrize("what", HOSTILE_FILES)
def test_what_an_entry_says_of_a_file_is_checked(what):
    """Before any file is looked at."""
    values, words = HOSTILE_FILES[what]
    with sparing(), pytest.raises(CaseError, match=words):
        validate(mask_case(fill=Fill("file", file=values)))


def test_the_kind_and_the_file_go_together():
    """One without the other is an error, also where nothing was validated."""
    for fill in (Fill("file"), Fill("raw", file=Stored(D, "float32", (2, 5)))):
        with pytest.raises(CaseError, match="the kind `file`"):
            validate(mask_case(fill=fill))
    with pytest.raises(CaseError, match="names none"):
        make_bits(Fill("file"), torch.float32, (2,), "cpu")


def test_an_entry_that_names_a_folder_is_refused(tmp_path):
    """A file beside it is all that it can mean."""
    path = corpus.write(tmp_path / "a", entry(case_of(made(), tmp_path)))
    text = path.read_text().replace('"digest"', '"folder": "/etc", "digest"')
    path.write_text(text)
    with pytest.raises(CaseError, match="names a folder"):
        corpus.read(path)


def test_a_tensor_beyond_the_limit_is_not_stored(tmp_path):
    """And not copied: it is an expanded one, of a single element."""
    with sparing(), pytest.raises(CaseError, match=str(MAX_STORED_BYTES)):
        stored.put(torch.zeros(1).expand(MAX_STORED_BYTES), tmp_path)
    assert [] == everything(tmp_path)


def test_a_case_with_a_file_goes_through_the_pipe(tmp_path):
    """To the child, as msgpack, with where the file is."""
    case = case_of(made(), tmp_path)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(case), type=type(case))
    assert case == again
    assert str(tmp_path) == again.fills["logits"].file.folder
