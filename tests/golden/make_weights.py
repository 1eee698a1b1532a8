#!/usr/bin/env python3
"""Makes tests/golden/weights/small.gguf and small.safetensors, read by tests/unit/test_gguf.c and test_weights.c.

    pip install gguf==0.19.0 safetensors==0.8.0 numpy && python3 tests/golden/make_weights.py

Written by the formats' own packages, so that the readers are checked against someone else's idea of the bytes. Tensor
values are small whole numbers, exact in every type used.
"""
import pathlib

import gguf
import numpy
from safetensors.numpy import save_file

out = pathlib.Path(__file__).parent / "weights"
out.mkdir(exist_ok=True)

w = gguf.GGUFWriter(out / "small.gguf", "llama")
w.add_name("small")
w.add_uint8("t.u8", 200)
w.add_int8("t.i8", -100)
w.add_uint16("t.u16", 60000)
w.add_int16("t.i16", -30000)
w.add_uint32("t.u32", 4000000000)
w.add_int32("t.i32", -2000000000)
w.add_uint64("t.u64", 2**63 + 1)
w.add_int64("t.i64", -2**62)
w.add_float32("t.f32", 0.1)
w.add_float64("t.f64", 0.1)
w.add_bool("t.bool", True)
w.add_string("t.text", "plain")
w.add_array("t.strings", ["a", "", "Straße", "\n"])
w.add_array("t.ints", [1, -2, 2**31 - 1])
w.add_array("t.reals", [0.5, -0.25])
w.add_array("t.bools", [True, False])
w.add_custom_alignment(64)
w.add_tensor("square", numpy.arange(6, dtype=numpy.float32).reshape(2, 3))
w.add_tensor("half", numpy.arange(5, dtype=numpy.float16))
plain = numpy.tile(numpy.arange(-8, 8, dtype=numpy.float32), 8).reshape(2, 64)
q = gguf.quants.quantize(plain, gguf.GGMLQuantizationType.Q4_0)
w.add_tensor("quantised", q, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
w.add_tensor("stack", numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()

save_file({"square": numpy.arange(6, dtype=numpy.float32).reshape(2, 3), "half": numpy.arange(5, dtype=numpy.float16),
           "scalar": numpy.array(7, dtype=numpy.float32)}, out / "small.safetensors", metadata={"format": "pt"})
