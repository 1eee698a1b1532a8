#!/usr/bin/env python3
"""Makes tests/golden/wtypes: for each weight type TYPE.bin (blocks as in a GGUF file) and TYPE.f32 (what they mean).

    pip install gguf==0.19.0 numpy && python3 tests/golden/make_wtypes.py

The blocks are random bytes, so that every bit of a block is used; the scales (f16) of most blocks are replaced by
ordinary ones; the rest stay random, or are a subnormal and an infinity. The meaning comes from the `gguf` package's
own dequantisation. NaNs are compared as NaNs, everything else by its bits.
"""
import pathlib

import numpy
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

# type: byte positions of f16 scales within a block
SCALES = {"F32": [], "F16": [], "BF16": [], "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
ITEMS = 2048

out = pathlib.Path(__file__).parent / "wtypes"
out.mkdir(exist_ok=True)
random = numpy.random.default_rng(3)
for name, scales in SCALES.items():
    kind = GGMLQuantizationType[name]
    block, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (ITEMS // block, block_bytes), dtype=numpy.uint8)
    for at in scales:
        plain = (random.standard_normal(len(blocks)) / 50).astype(numpy.float16).view(numpy.uint8).reshape(-1, 2)
        keep = numpy.arange(len(blocks)) % 4 != 3
        blocks[keep, at:at + 2] = plain[keep]
        blocks[3, at:at + 2] = 0x23, 0x81   # a negative subnormal
        blocks[7, at:at + 2] = 0x00, 0x7c   # infinity
    with numpy.errstate(all="ignore"):
        plain_type = {"F32": numpy.float32, "F16": numpy.float16}.get(name, numpy.uint8)
        meaning = quants.dequantize(blocks.reshape(1, -1).view(plain_type), kind)
    meaning = numpy.ascontiguousarray(meaning, dtype="<f4").reshape(-1)
    assert meaning.size == ITEMS
    (out / f"{name}.bin").write_bytes(blocks.tobytes())
    (out / f"{name}.f32").write_bytes(meaning.tobytes())
    print(name, int(numpy.isnan(meaning).sum()), "NaN of", ITEMS)
