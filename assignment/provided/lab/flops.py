"""Floating-point operations of one call of an ATen operator.

matrix products and convolutions   2 for each multiply-add
attention kernels                  their two products on all T·S pairs, masked or not; 6 for
                                   the scale and softmax of a pair, 1 for an added mask
softmax and norms                  PER_ELEMENT
other arithmetic                   1 for each element: of the result, or of what a sum sums up
copies, casts, selection, integers 0
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

# Left operand of a product. FLOPs = 2 · its elements · columns of the result.
PRODUCTS = {
    "mm": "self", "bmm": "self", "mv": "self", "dot": "self", "vdot": "self", "linear": "input",
    "addmm": "mat1", "baddbmm": "batch1", "addbmm": "batch1", "addmv": "mat",
    "_addmm_activation": "mat1", "_int_mm": "self", "_scaled_mm": "self",
    "_weight_int8pack_mm": "self", "_weight_int4pack_mm": "self",
    "_weight_int4pack_mm_for_cpu": "self",
}  # fmt: skip
ONE_COLUMN = {"mv", "dot", "vdot", "addmv"}

# FLOPs for each element of the largest tensor.
PER_ELEMENT = {
    "_softmax": 5,  # max, subtract, exp, sum, divide
    "_log_softmax": 5,
    "_softmax_backward_data": 4,
    "_log_softmax_backward_data": 4,
    "logsumexp": 4,
    "native_layer_norm": 7,  # mean, subtract, square, mean, multiply, weight, bias
    "native_group_norm": 7,
    "native_batch_norm": 7,
    "_fused_rms_norm": 4,  # square, mean, multiply, weight
    "var": 3,
    "std": 3,
    "var_mean": 4,
    "addcmul": 2,
    "addcdiv": 2,
    "addr": 2,
    "lerp": 3,
}

# Move, make or select numbers without arithmetic on them.
NO_FLOPS = {
    "clone", "copy", "_to_copy", "cat", "stack", "constant_pad_nd", "roll", "flip", "repeat",
    "repeat_interleave", "tril", "triu", "where", "nonzero", "nonzero_static", "masked_select",
    "masked_fill", "masked_scatter", "index", "index_select", "index_copy", "index_fill",
    "gather", "take", "embedding", "select_scatter", "slice_scatter", "diagonal_scatter",
    "as_strided_scatter", "select_backward", "slice_backward", "diagonal_backward",
    "diag_embed", "im2col", "fill", "zero", "zeros", "ones", "full", "zeros_like", "ones_like",
    "full_like", "new_zeros", "new_ones", "new_full", "scalar_tensor", "arange", "linspace",
    "logspace", "eye", "rand", "randn", "rand_like", "randn_like", "randint", "randint_like",
    "randperm", "normal", "uniform", "random", "bernoulli", "exponential", "lift_fresh_copy",
    "_local_scalar_dense", "view_as_real", "complex", "unique_consecutive", "_unique2",
    "tril_indices", "triu_indices",
}  # fmt: skip


def count_flops(name: str, given: dict, operands: list[Tensor], results: list[Tensor]) -> int:
    """FLOPs of operator `name` on the arguments `given`, among them the tensors `operands`."""
    if name in PRODUCTS:
        return _product_flops(name, given, results[0])
    if name in FORMULAS:
        return FORMULAS[name](given, results)
    tensors = [*operands, *results]
    if name in NO_FLOPS or not any(t.is_floating_point() or t.is_complex() for t in tensors):
        return 0
    if name.startswith("_foreach_"):
        return sum(tensor.numel() for tensor in given["self"])
    return PER_ELEMENT.get(name, 1) * max(tensor.numel() for tensor in tensors)


def _product_flops(name: str, given: dict, result: Tensor) -> int:
    columns = 1 if name in ONE_COLUMN else result.shape[-1]
    product = 2 * given[PRODUCTS[name]].numel() * columns
    adds_self = name.lstrip("_").startswith(("add", "badd")) and given.get("beta", 1) != 0
    adds_bias = given.get("bias") is not None
    return product + result.numel() * (adds_self + adds_bias)


def _attention_pairs(given: dict) -> int:
    batch, heads, num_queries, _ = given["query"].shape
    return batch * heads * num_queries * given["key"].shape[2]


def _attention_flops(given: dict, results: list[Tensor]) -> int:
    widths = given["query"].shape[3] + given["value"].shape[3]
    masked = any(given.get(name) is not None for name in ("attn_mask", "attn_bias"))
    return _attention_pairs(given) * (2 * widths + 6 + masked)


def _attention_backward_flops(given: dict, results: list[Tensor]) -> int:
    # Scores and dP again and the products for dQ, dK, dV: three over H, two over V's width.
    widths = 3 * given["query"].shape[3] + 2 * given["value"].shape[3]
    return _attention_pairs(given) * (2 * widths + 8)


def _convolution_flops(given: dict, results: list[Tensor]) -> int:
    taps = given["weight"][0].numel()  # of one output; transposed: that one input feeds
    places = given["input"] if given["transposed"] else results[0]
    bias = results[0].numel() if given["bias"] is not None else 0
    return 2 * places.numel() * taps + bias


def _convolution_backward_flops(given: dict, results: list[Tensor]) -> int:
    taps = given["weight"][0].numel()
    places = given["input"] if given["transposed"] else given["grad_output"]
    to_input, to_weight, to_bias = given["output_mask"]
    return 2 * places.numel() * taps * (to_input + to_weight) + places.numel() * to_bias


_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)  # fmt: skip
FORMULAS: dict[str, Callable[[dict, list[Tensor]], int]] = {
    "convolution": _convolution_flops,
    "convolution_backward": _convolution_backward_flops,
    "embedding_dense_backward": lambda given, results: given["grad_output"].numel(),
    **dict.fromkeys(_ATTENTION, _attention_flops),
    **dict.fromkeys([f"{name}_backward" for name in _ATTENTION], _attention_backward_flops),
}
