#!/usr/bin/env python3
"""Greedy answers under penalties and biases, and log-probabilities, as transformers gives them.

    python make_sampling.py

Writes sampling/golden.json, which tests/unit/test_sampling_layouts.c reads. Model: models/llama-untied; prompts: parts of its
ids.json. No token hangs on less than 1e-3. Log-probabilities are of the model's own logits: the chosen token's and the best 5.
"""
import json
import pathlib

import torch
import transformers

ROOM = pathlib.Path(__file__).resolve().parent
MODEL = ROOM / "models" / "llama-untied"
NEW = 30
EOS = 2


def answer(model, ids, case):
    bias = {(int(t),): b for t, b in case["bias"]}
    out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=NEW, eos_token_id=EOS, pad_token_id=EOS,
                         repetition_penalty=case["repetition_penalty"], min_new_tokens=case["min_tokens"] or None,
                         sequence_bias=bias or None, output_logits=True, output_scores=True, return_dict_in_generate=True)
    tokens = out.sequences[0][len(ids):].tolist()
    for score in out.scores:
        two = score[0].topk(2).values
        assert two[0] - two[1] > 1e-3, (case, two)
    logprobs = [torch.log_softmax(l[0].double(), 0) for l in out.logits]
    best = [l.topk(5) for l in logprobs]
    return {"prompt": ids, "tokens": tokens, "logprobs": [round(float(l[t]), 6) for l, t in zip(logprobs, tokens)],
            "best": [[[int(t), round(float(v), 6)] for v, t in zip(b.values, b.indices)] for b in best]} | case


def main():
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
    ids = json.loads((MODEL / "ids.json").read_text())
    cases = [{"repetition_penalty": r, "bias": b, "min_tokens": m} for r, b, m in (
        (1.0, [], 0), (1.3, [], 0), (0.8, [], 0), (2.5, [], 0), (1.0, [[7, 0.5], [90, 1.25], [33, -2.0]], 0), (1.0, [[EOS, 50.0]], 6))]
    answers = [answer(model, ids[at:at + n], c) for at, n in ((0, 40), (7, 9), (20, 20)) for c in cases]
    (ROOM / "sampling").mkdir(exist_ok=True)
    (ROOM / "sampling" / "golden.json").write_text(json.dumps(answers) + "\n")
    print([a["tokens"] for a in answers])


main()
