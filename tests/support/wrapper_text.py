"""Makes the text of a compiled module with two Triton kernels, ``add`` and ``relu``, and a given ``call``."""

from __future__ import annotations

import textwrap

_MODULE = """
# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()

add = async_compile.triton('add', '''
@triton_heuristics.pointwise(
    triton_meta={'signature': {'in_ptr0': '*fp32', 'in_ptr1': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32'}},
    inductor_meta={'mutated_arg_names': []},
)
@triton.jit
def add(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')

relu = async_compile.triton('relu', '''
@triton_heuristics.pointwise(
    triton_meta={'signature': {'in_out_ptr0': '*fp32', 'xnumel': 'i32'}},
    inductor_meta={'mutated_arg_names': ['in_out_ptr0']},
)
@triton.jit
def relu(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')


def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    assert_size_stride(arg0_1, (16, 16), (16, 1))
    with torch.cuda._DeviceGuard(0):
BODY
def get_args():
    from torch._dynamo.testing import rand_strided
    arg0_1 = rand_strided((16, 16), (16, 1), device='cuda:0', dtype=torch.float32)
    arg1_1 = rand_strided((16, 64), (64, 1), device='cuda:0', dtype=torch.float32)
    arg2_1 = 7
    return [arg0_1, arg1_1, arg2_1]
"""


def module_text(body: str) -> str:
    """The module whose ``call`` has these statements after it has unpacked ``arg0_1``, ``arg1_1`` and ``arg2_1``.

    The first two are tensors of 1 and 4 KiB, the third is the number 7.
    """
    return _MODULE.replace("BODY", textwrap.indent(textwrap.dedent(body), " " * 8))
