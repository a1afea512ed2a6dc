"""The buffers that each call of a module touches, from hand-made and from recorded modules."""

from __future__ import annotations

import pytest
from source_data import CPU, GPU, module_of, text_of
from wrapper_text import module_text

from inductor_bench.records.code import BufferUse, ModuleBuffers
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.static_calls import read_buffers

KB = 1 << 10


def buffers_of(body: str) -> ModuleBuffers:
    text = module_text(body)
    return read_buffers(text, read_module(text))


def test_a_kernel_reads_and_writes_its_arguments_and_a_library_call_its_results() -> None:
    found = buffers_of(
        """
        buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
        add.run(arg0_1, arg0_1, buf0, 256, stream=stream0)
        buf1 = empty_strided_cuda((16, 64), (64, 1), torch.float32)
        extern_kernels.mm(buf0, arg1_1, out=buf1)
        buf2 = torch.ops.aten.sort.stable(buf1, stable=False, dim=1)
        buf3 = buf2[0]
        assert_size_stride(buf3, (16, 64), (64, 1))
        relu.run(buf3, 1024, stream=stream0)
        return (buf3, buf1, )
        """
    )
    assert found.inputs == ("arg0_1", "arg1_1", "")
    assert found.outputs == ("buf3", "buf1")
    assert found.calls == (
        (BufferUse("arg0_1", KB, KB, read=KB), BufferUse("buf0", KB, KB, written=KB)),
        (
            BufferUse("buf0", KB, KB, read=KB),
            BufferUse("arg1_1", 4 * KB, 4 * KB, read=4 * KB),
            BufferUse("buf1", 4 * KB, 4 * KB, written=4 * KB),
        ),
        (BufferUse("buf1", 4 * KB, 4 * KB, read=4 * KB), BufferUse("buf3", 4 * KB, 4 * KB, written=4 * KB)),
        (BufferUse("buf3", 4 * KB, 4 * KB, read=4 * KB, written=4 * KB),),
    )


def test_aliases_and_the_memory_of_deleted_buffers_are_one_buffer() -> None:
    found = buffers_of(
        """
        buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
        add.run(arg0_1, arg0_1, buf0, 256, stream=stream0)
        buf1 = buf0; del buf0  # reuse
        relu.run(buf1, 256, stream=stream0)
        buf2 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
        add.run(arg0_1, reinterpret_tensor(buf1, (16, 16), (1, 16), 0), buf2, 256, stream=stream0)
        del buf1
        buf3 = empty_strided_cuda((256, ), (1, ), torch.float32)
        add.run(arg0_1, buf2, buf3, 256, stream=stream0)
        return (buf3, )
        """
    )
    names = [[use.buffer for use in uses or ()] for uses in found.calls]
    assert names == [["arg0_1", "buf0"], ["buf0"], ["arg0_1", "buf0", "buf2"], ["arg0_1", "buf2", "buf0"]]
    assert found.outputs == ("buf0",)


def test_slices_count_by_their_elements_and_an_input_keeps_its_memory() -> None:
    found = buffers_of(
        """
        buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
        left = reinterpret_tensor(arg1_1, (16, 16), (64, 1), 0)
        add.run(left, reinterpret_tensor(arg1_1, (16, 16), (64, 1), 16), buf0, 256)
        del arg0_1
        del arg1_1
        buf1 = empty_strided_cuda((16, 64), (64, 1), torch.float32)
        buf1.zero_()
        return (buf0, buf1, )
        """
    )
    assert found.calls[0] == (
        BufferUse("arg1_1", 2 * KB, 2 * KB, read=2 * KB),
        BufferUse("buf0", KB, KB, written=KB),
    )
    assert found.calls[1] == (BufferUse("buf1", 4 * KB, 4 * KB, written=4 * KB),)


@pytest.mark.parametrize(
    "name", ["bias_addmm", "mm_dtype", "bmm_dtype", "mm_plus_mm", "conv1x1_via_mm", "of_a_later_torch"]
)
def test_a_library_call_whose_overload_is_unknown_has_its_buffers(name: str) -> None:
    """With max_autotune a linear layer is such a call: its bias may be any shape."""
    found = buffers_of(
        f"""
        buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
        extern_kernels.{name}(reinterpret_tensor(arg0_1, (16, 16), (0, 1), 0), arg1_1, alpha=1, beta=1, out=buf0)
        return (buf0, )
        """
    )
    names = [(use.buffer, bool(use.read), bool(use.written)) for use in found.calls[0] or ()]
    assert names == [("arg0_1", True, False), ("arg1_1", True, False), ("buf0", False, True)]


def test_partitions_share_the_buffers_of_the_module_and_the_hosts_buffers_are_left_out() -> None:
    name = GPU / "samples" / "partition" / "module_0.py"
    source = module_of(name)
    found = read_buffers(text_of(name), source)
    assert found.inputs == ("arg0_1", "arg1_1")
    by_target = {call.target: uses for call, uses in zip(source.calls, found.calls, strict=True)}
    assert by_target["cpp_fused_sin_2"] is None
    assert [use.buffer for use in by_target["buf3.copy_"] or ()] == ["buf0"]  # which buf2 reuses
    assert [use.buffer for use in by_target["extern_kernels.mm"] or ()] == ["buf0", "arg1_1", "buf1"]


@pytest.mark.parametrize(
    "path",
    [
        GPU / "mixnet_l_p10" / "forward.py",
        GPU / "mixnet_l_p10" / "backward.py",
        GPU / "gpu_kinds" / "0_forward.py",
        GPU / "samples" / "attention" / "module_1.py",
        CPU / "forward.py",
    ],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_every_call_of_a_recorded_module_has_its_buffers(path) -> None:  # type: ignore[no-untyped-def]
    source = module_of(path)
    found = read_buffers(text_of(path), source)
    assert len(found.inputs) == len(source.inputs)
    assert len(found.calls) == len(source.calls) and None not in found.calls
    uses = [use for call in found.calls for use in call or ()]
    assert all(0 < max(use.read, use.written) <= use.touched <= use.size for use in uses)


@pytest.mark.parametrize("module", ["forward", "backward"])
def test_inductor_counts_the_same_bytes_if_a_kernel_takes_whole_buffers(module: str) -> None:
    path = GPU / "mixnet_l_p10" / f"{module}.py"
    source = module_of(path)
    found = read_buffers(text_of(path), source)
    counts = {kernel.name: kernel.moved_bytes for kernel in source.kernels}
    exact = total = 0
    for call, uses in zip(source.calls, found.calls, strict=True):
        counted = counts.get(call.kernel or "")
        if counted:
            moved = sum(use.read + use.written for use in uses or ())
            assert moved > 0.99 * counted
            exact += abs(moved / counted - 1) < 0.01
            total += 1
    assert exact > 0.8 * total


def test_the_buffers_of_a_module_without_a_python_call_are_unknown() -> None:
    path = GPU / "samples" / "wrapper" / "module_0.py"
    found = read_buffers(text_of(path), module_of(path))
    assert found.calls and not any(found.calls) and found.inputs == ()
