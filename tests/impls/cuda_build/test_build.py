"""NVRTC builds and their cache: what is rebuilt, what is not, and what an error says."""

import pickle

import pytest

from impls.cuda_build import SUPPORTED_ARCHS, BuildError, BuildOptions, build, cache, compile_cubin, headers

KERNEL = 'extern "C" __global__ void f(int* p) { *p = 1; }\n'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def builds(monkeypatch):
    """The archs that NVRTC was called for, in order."""
    calls = []
    real = build._nvrtc

    def counted(text, source, needs_cuda_headers, arch, options):
        calls.append(arch)
        return real(text, source, needs_cuda_headers, arch, options)

    monkeypatch.setattr(build, "_nvrtc", counted)
    return calls


def _source(tmp_path, text=KERNEL, name="kernel.cu"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("arch", SUPPORTED_ARCHS)
def test_every_architecture_builds_without_a_gpu(tmp_path, arch):
    """A cubin is an ELF file."""
    assert compile_cubin(_source(tmp_path), arch)[:4] == b"\x7fELF"


def test_a_hit_does_not_call_nvrtc(tmp_path, builds):
    """The second build of one source returns the first one's bytes."""
    source = _source(tmp_path)
    assert compile_cubin(source, "sm_90a") == compile_cubin(source, "sm_90a")
    assert builds == ["sm_90a"]


def test_the_same_source_in_another_place_is_a_hit(tmp_path, builds):
    """The key is made of contents, not of paths or times."""
    (tmp_path / "elsewhere").mkdir()
    compile_cubin(_source(tmp_path), "sm_80")
    compile_cubin(_source(tmp_path / "elsewhere", name="other.cu"), "sm_80")
    assert builds == ["sm_80"]


@pytest.mark.parametrize(
    "options", [BuildOptions(std="c++20"), BuildOptions(half_operators=False), BuildOptions(defines=(("N", "2"),))]
)
def test_every_option_is_part_of_the_key(tmp_path, builds, options):
    """Other options are another build; so is another architecture."""
    source = _source(tmp_path)
    compile_cubin(source, "sm_90a")
    compile_cubin(source, "sm_90a", options)
    compile_cubin(source, "sm_89", options)
    assert builds == ["sm_90a", "sm_90a", "sm_89"]


def test_a_change_in_a_header_of_a_header_is_a_miss(tmp_path, builds):
    """Project headers count by content, however deep they are included."""
    source = _source(tmp_path, '#include "a.cuh"\n' + KERNEL)
    _source(tmp_path, '  #  include "b.cuh"\n', "a.cuh")
    _source(tmp_path, "constexpr int n = 1;\n", "b.cuh")
    compile_cubin(source, "sm_90a")
    _source(tmp_path, "constexpr int n = 2;\n", "b.cuh")
    compile_cubin(source, "sm_90a")
    compile_cubin(source, "sm_90a")
    assert builds == ["sm_90a", "sm_90a"]


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:-9] + b"x" + b[-8:], lambda b: b[200:]]
)
def test_a_damaged_file_is_built_again(tmp_path, folder, builds, damage):
    """Truncated or altered code is never returned, and the file is repaired."""
    source = _source(tmp_path)
    cubin = compile_cubin(source, "sm_90a")
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert cubin[:4] == compile_cubin(source, "sm_90a")[:4]
    assert compile_cubin(source, "sm_90a")
    assert builds == ["sm_90a", "sm_90a"]
    assert [file] == list(folder.iterdir())


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch, builds):
    """A file where the folder should be: both builds work."""
    monkeypatch.setenv("WARPCHECK_CACHE", str(_source(tmp_path, name="file")))
    source = _source(tmp_path)
    assert compile_cubin(source, "sm_90a")
    assert compile_cubin(source, "sm_90a")
    assert builds == ["sm_90a", "sm_90a"]


def test_a_failed_write_leaves_nothing_behind(folder, monkeypatch):
    """Neither the file nor the temporary one."""

    def refuse(*_):
        raise OSError

    monkeypatch.setattr(cache.os, "replace", refuse)
    cache.store("name", b"payload")
    assert list(folder.iterdir()) == []


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    """WARPCHECK_CACHE first, then XDG_CACHE_HOME/warpcheck, then ~/.cache/warpcheck."""
    assert tmp_path / "cache" == cache.directory()
    monkeypatch.delenv("WARPCHECK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "warpcheck" == cache.directory()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".cache" / "warpcheck" == cache.directory()


def test_an_error_has_a_line_a_tool_and_the_whole_log(tmp_path):
    """And it survives pickling, since builds run in other processes."""
    source = _source(tmp_path, '#warning look\nextern "C" __global__ void f(int* p) { *p = 1 +; }\n')
    with pytest.raises(BuildError) as caught:
        compile_cubin(source, "sm_90a")
    error = caught.value
    assert error.tool == "nvrtc"
    assert str(error) == 'nvrtc: kernel.cu for sm_90a: kernel.cu(2): error: expected an expression'  # fmt: skip
    assert "#warning" in error.log
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.tool, copy.log, str(copy)) == (error.tool, error.log, str(error))


def test_half_operators_can_be_taken_away(tmp_path):
    """Code that adds halves with + builds with the operators, and not without them, as in torch's extension builds."""
    text = '#include <cuda_fp16.h>\nextern "C" __global__ void f(__half* p) { p[0] = p[0] + p[1]; }\n'
    source = _source(tmp_path, text)
    assert compile_cubin(source, "sm_90a")
    with pytest.raises(BuildError):
        compile_cubin(source, "sm_90a", BuildOptions(half_operators=False))


def test_half_conversions_can_be_taken_away(tmp_path):
    """The same for an implicit conversion of bfloat16."""
    text = '#include <cuda_bf16.h>\nextern "C" __global__ void f(__nv_bfloat16* p, float* q) { q[0] = p[0]; }\n'
    source = _source(tmp_path, text)
    assert compile_cubin(source, "sm_90a")
    with pytest.raises(BuildError):
        compile_cubin(source, "sm_90a", BuildOptions(half_operators=False))


def test_an_unknown_architecture_raises(tmp_path):
    """The message lists the known ones."""
    with pytest.raises(ValueError, match="sm_80, sm_89, sm_90a"):
        compile_cubin(_source(tmp_path), "sm_70")


def test_the_cuda_headers_are_complete(tmp_path):
    """The folder has what cuda_fp16.h includes, and its version is known."""
    folder = headers.cuda_include_directory()
    assert folder is not None
    assert (folder / "crt" / "host_defines.h").is_file()
    assert headers.cuda_header_version()[:2].isdigit()


def test_cuda_headers_are_told_from_project_headers(tmp_path):
    """What is not found beside the source is somebody else's, and makes the CUDA headers' version part of the key."""
    _source(tmp_path, "", "a.cuh")
    source = _source(tmp_path, '#include "a.cuh"\n#include <cuda_fp16.h>\n')
    assert headers.project_headers(source) == ({"a.cuh": b""}, True)
    assert headers.project_headers(_source(tmp_path)) == ({}, False)


def test_threads_that_want_the_same_code_compile_it_once(tmp_path, builds):
    """And all get it."""
    import threading

    source, results = _source(tmp_path), []
    threads = [threading.Thread(target=lambda: results.append(compile_cubin(source, "sm_90a"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert builds == ["sm_90a"]
