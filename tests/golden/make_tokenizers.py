#!/usr/bin/env python3
"""Makes tests/golden/tokenizers: small tokenizers of several kinds, hard strings, and what `tokenizers` makes of them.

    python3 tests/golden/make_tokenizers.py MODEL_DIR DEEPSEEK_JSON SMOLLM2_GGUF LLAMA_VOCABS

MODEL_DIR is configs/models/jargon-moe; the others are what `tests/download.sh deepseek`, `smollm2` and `llama-vocabs` print. Made with Python 3.11,
tokenizers 0.23.3, gguf 0.19. The trained tokenizers are committed; where they are there, only the ids are made anew.

NAME/tokenizer.json, and for some NAME/tokenizer.gguf with the same vocabulary, written by the gguf package

strings.json      [hex of the bytes, ..]; broken UTF-8 is decoded with errors="replace" first, as the tokenizer does
NAME.json         {"ids": with control tokens parsed, "special": the same with what the post-processor adds (null: nothing),
                   "plain": with control tokens as plain text (null where it is the same as ids),
                   "text": decode(ids) without control tokens (null where it is the string itself),
                   "random": [[ids, text], ..] decode of ids that need not be valid UTF-8 (byte-level only)}
"""
import json
import os
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def strings():
    out = ["", " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\x00", "a", "\u00a0", "\u3000", "\ufeff", "\u2581", "\u2581a b", "\u2581\u2581"]
    # every general category that text can hold: characters that have been in Unicode since 3.2, so all versions agree
    old = unicodedata.ucd_3_2_0
    by_class = {}
    for c in map(chr, range(0x110000)):
        k = unicodedata.category(c)
        if k == "Cs":
            continue
        if k in ("Cn", "Co") or old.category(c) == k:
            by_class.setdefault(k, []).append(c)
    for k in sorted(by_class):
        some = by_class[k]
        step = max(1, len(some) // 12)
        chosen = some[::step][:12]
        out += ["".join(chosen), "x" + chosen[0] + "y " + chosen[-1] + "1 " + chosen[len(chosen) // 2] + "\n"]
    # every kind of white space, alone, in runs, in front, behind, between
    spaces = [c for c in map(chr, range(0x10000)) if c.isspace() and c not in "\x1c\x1d\x1e\x1f"] + ["\u180e", "\u200b", "\u2060"]
    out += [f"a{c}b{c}{c}c {c} d{c}" for c in spaces]
    for n in (1, 2, 3, 4, 5, 8, 16, 33):
        out += [" " * n + "word", "word" + " " * n, "\n" * n + "word", "word" + "\n" * n + "word", "\t" * n + " x", " " * n + "\n" + " " * n]
    out += ["1" * n for n in range(1, 14)] + ["a" + "7" * n + "b 12" for n in (1, 2, 3, 4, 7)]
    out += ["3.14159", "1,000,000", "-42", "1e-10", "0x7fff", "2026-11-30", "١٢٣٤", "१२३", "Ⅷ ½ ²³ ①", "１２３４", "𝟙𝟚𝟛", "𐄇𐄈"]
    for w in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
        out += [f"I{w} you{w.upper()} x{w}y it{w.replace(chr(39), chr(0x2019))} {w}"]
    out += ["'", "''", "'s", "'S", " 's", "'\u017f", "can't won't shouldn't've", "y'all'd've", "''s's''", "O'Neill's", "rock 'n' roll"]
    # emoji: joined, with skin tones, flags, keycaps, variation selectors, tags
    out += ["😀", "👨‍👩‍👧‍👦", "👩🏽‍💻", "🏳️‍🌈", "🇩🇪🇫🇷🇺🇸", "1️⃣2️⃣", "❤️❤", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "😀😀😀 😶‍🌫️!", "🫠🦙.cpp", "☕️ ☕", "👍🏿👍", "🤷‍♀️"]
    # scripts
    out += ["我想在apple工作1314151天～", "日本語のテキストです。カタカナ、ひらがな", "한국어 텍스트 ㄱㄴㄷ", "Привет, мир!", "Ελληνικά κείμενο ΣΊΣΥΦΟΣ",
            "שָׁלוֹם עולם", "السَّلامُ عليكم", "हिन्दी में पाठ", "ภาษาไทยไม่มีวรรค", "កាន់តែពិសេសអាចខលចេញ", "Tiếng Việt có dấu", "İstanbul ıIiİ ǅ Ǆ ǆ",
            "ÀÉÎõü ß ẞ ŒÆ", "ﬁﬂ ﬀ ㎏ № ™ ª º", "ＦｕｌｌＷｉｄｔｈ", "𝓢𝓬𝓻𝓲𝓹𝓽 𝔉𝔯𝔞𝔨", "நிலா தமிழ்", "ქართული ენა", "አማርኛ", "བོད་སྐད།", "မြန်မာ", "ᚠᚢᚦᚨᚱᚲ", "𓀀𓁐", "Ꮳꮃꭹ", "漢字かな交じり文　全角空白"]
    # combining marks and normalisation
    out += ["e\u0301 \u00e9", "a\u0323\u0307 a\u0307\u0323", "\u1e9b\u0323", "\u0301", "\u0301a", " \u0301", "Z\u0351\u036b\u0343\u036a\u0302\u036bA\u0334\u0335\u031e\u0348",
            "\u212b \u2126 \u212a", "\uac01 \u1100\u1161\u11a8", "\ufb01", "\u01c4\u01c5", "o\u0308\u0304", "\u00c5ngstr\u00f6m", "\u0958 \u0915\u093c", "\ufdfa"]
    # code, markup, urls
    out += ["def f(x):\n    return x**2  # square\n", "\tif (a && b) {\n\t\treturn !c;\n\t}\n", "<div class=\"a\">&nbsp;</div>", "https://example.org/a?b=c&d=%20#e",
            "a@b.example", "{\"k\": [1, 2.5, null]}", "$x = 3; // ok", "C:\\Temp\\x.txt", "x<=y>=z!==w", "```c\nint a;\n```", "---\n***\n===", "#include <stdio.h>\r\n\r\nint main(void);\r\n",
            "\\n is not \n", "a_b __init__ snake_case", "camelCaseWords HTTPServer XMLHttpRequest iPhone", "!!!???...", "(((())))", "\u2026\u2014\u2013 \u201cquoted\u201d \u2018x\u2019", "100%$£€¥", "a/b//c\n//d", "~`^|<>+="]
    # plain text
    out += ["Hello world", " Hello world", "Hello, world!", "The quick brown fox jumps over the lazy dog.", "  Hello\n  there", "\n =", "Hello\u00a0world", "multiple   spaces    here",
            "trailing ", "trailing\n", "UPPER lower Title", "supercalifragilisticexpialidocious", "a" * 100, "ab" * 60, "\u4e00" * 40, "é" * 30, "nǃxóõ", "tail recursion: see tail recursion", "a b c d e f g", "x\x01\x02\x7f\x80y",
            "\u200b\u200bzero width", "right\u200fto\u200eleft", "soft\u00adhyphen", "word\u2060joiner", "line\u2028sep\u2029para", "nel\u0085x", "a\u200cb\u200d \u200c\x01\u200d", "\u24b6word word\u24d0 \u20ddword word\u203f", "\\word\u0660 .word_"]
    # control tokens written as plain text, whole and broken, next to each other and to blanks
    out += ["<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|endoftext", "<|begin|>x<|end|>", "x <|begin|> y", "\n<|end|>\n", "<s>", "</s>", "<s>a</s>", "a <s> b", " </s>x", "<unk>", "<0x41>", "a<0x0A>b",
            "<\uff5cbegin\u2581of\u2581sentence\uff5c>hi", "\uff5c", "<pad>", "[KEEP]", "x[KEEP]y [KEEP]", "x  <left>  y", "x  <right>  y", "xwordy word wordword word.", "HELLO <Norm> <norm> x<NORM>", "<longer><long>", "<longest", "<lon<long>", "  <right>   <left>  z", "<left><right>"]
    out = [s.encode() for s in out]
    # broken UTF-8: lone continuation, overlong, surrogates, too large, cut short at each length, wrong bytes
    out += [b"\x80", b"a\x80b", b"\xff\xfe", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80",
            b"\xe2\x82", b"x\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98", b"\xf0\x9f\x98 ok", b"\xf0\x9f", b"\xf0", b"\xe2\x28\xa1", b"\xf0\x28\x8c\xbc", b"ok \xc3\x28", b"\xc3", b"\xe3\x81\x82\xe3\x81", b"\xf0\x9f\xf0\x9f\x98\x80", b"\xe2\xe2\x82\xac", b"\xc2\xc2\xa0", b"\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf", b"\xef\xbb\xbfbom", b"\xfe\xed\xfa\xce"]
    return out


def corpus(texts):
    import pydoc_data.topics
    topics = sorted(pydoc_data.topics.topics.items())
    texts = [t.replace("\x00", "") for t in texts]   # U+0000 as a token: no JSON object of jansson can hold it
    return texts * 4 + ["\n".join(line for line in text.split("\n")) for _, text in topics][:20]


def save(name, tokenizer):
    os.makedirs(os.path.join(HERE, name), exist_ok=True)
    data = json.loads(tokenizer.to_str()) if isinstance(tokenizer, Tokenizer) else tokenizer
    Tokenizer.from_str(json.dumps(data))
    with open(os.path.join(HERE, name, "tokenizer.json"), "w") as f:
        json.dump(data, f, separators=(",", ":"))
        f.write("\n")


def byte_level(name, texts, pre, normalizer=None, size=1200, ignore_merges=False, post=None, added=(), special=("<|endoftext|>", "<|begin|>", "<|end|>")):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    for a in added:
        t.add_tokens([a])
    if post:
        t.post_processor = post(t)
    save(name, t)


def sentence(name, texts, split, normalizer, pre, size=900, decoder=None, byte_fallback=True, fuse_unk=True, added=(), bos=True, unk="<unk>"):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = split
    if normalizer and isinstance(normalizer, normalizers.Normalizer) and not byte_fallback:
        t.normalizer = normalizer
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, limit_alphabet=150, show_progress=False))
    data = json.loads(t.to_str())
    head = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if byte_fallback else [])
    words = [w for w, _ in sorted(data["model"]["vocab"].items(), key=lambda x: x[1])]
    data["model"].update(vocab={w: i for i, w in enumerate(head + words)}, byte_fallback=byte_fallback, fuse_unk=fuse_unk, unk_token=unk)
    t = Tokenizer.from_str(json.dumps(data))
    t.normalizer, t.pre_tokenizer = normalizer or normalizers.Sequence([]), pre or pre_tokenizers.Sequence([])
    t.decoder = decoder
    t.add_special_tokens([AddedToken(w, normalized=False, special=True) for w in ("<unk>", "<s>", "</s>")])
    for a in added:
        t.add_tokens([a])
    if bos:
        t.post_processor = processors.TemplateProcessing(single="<s> $A </s>" if bos == "both" else "<s> $A", pair="<s> $A <s> $B",
                                                         special_tokens=[("<s>", 1), ("</s>", 2)])
    data = json.loads(t.to_str())
    for key, value in (("normalizer", normalizer), ("pre_tokenizer", pre)):
        if value is None:
            data[key] = None
    save(name, data)


def make(texts):
    P, N, D = pre_tokenizers, normalizers, decoders
    begin = lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", t.token_to_id("<|begin|>"))])])
    strip_added = [AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
                   AddedToken("word", single_word=True, normalized=False), AddedToken("[KEEP]", normalized=False),
                   AddedToken("<Norm>", normalized=True), AddedToken("<long>", normalized=False), AddedToken("<longer>", normalized=False)]
    split = lambda pattern, behavior="isolated", invert=False: P.Split(Regex(pattern), behavior, invert)
    byte_level("llama3", texts, P.Sequence([split(LLAMA3), P.ByteLevel(add_prefix_space=False, use_regex=False)]), ignore_merges=True, post=begin)
    byte_level("qwen2", texts, P.Sequence([split(QWEN2), P.ByteLevel(add_prefix_space=False, use_regex=False)]), N.NFC(), added=strip_added)
    byte_level("smollm", texts, P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False, use_regex=True)]))
    byte_level("cased", texts, P.Sequence([split(CASED), P.ByteLevel(add_prefix_space=False, use_regex=False)]))
    byte_level("falcon", texts, P.Sequence([P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=True, use_regex=True), P.Digits(False),
                                            P.Split(Regex("[0-9][0-9][0-9]"), "isolated")]), N.Sequence([N.NFKC(), N.Lowercase()]), added=strip_added)
    byte_level("behaviors", texts, P.Sequence([split(r"\s*\n", "merged_with_previous"), split("[.,;]", "merged_with_next"), split(r"\w+", "contiguous", True),
                                               P.Split("==", "removed"), P.ByteLevel(add_prefix_space=False, use_regex=False)]),
               N.Sequence([N.NFKD(), N.Strip(left=True, right=False), N.Replace(Regex("[0-9]{2}"), "<#>")]))
    meta = "\u2581"
    tail = [D.Replace(meta, " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]
    sentence("llama2", texts, P.Metaspace(meta, "always"), N.Sequence([N.Prepend(meta), N.Replace(" ", meta)]), None, decoder=D.Sequence(tail),
             added=[AddedToken("[KEEP]", normalized=False), AddedToken("<left>", lstrip=True, normalized=True)])
    sentence("metaspace", texts, P.Metaspace(meta, "first"), None, P.Metaspace(meta, "first", split=False), decoder=D.Sequence(tail), bos="both",
             added=strip_added)
    sentence("unknown", texts, P.Metaspace(meta, "always"), N.NFD(), P.Metaspace(meta, "always", split=True), decoder=D.Metaspace(meta, "always"),
             byte_fallback=False, fuse_unk=False, bos=False)
    sentence("fused", texts, P.Whitespace(), None, P.Whitespace(), decoder=D.Fuse(), byte_fallback=False, fuse_unk=True, bos=False)


def write_gguf(name, pre, bos):
    """The vocabulary of NAME/tokenizer.json as llama.cpp's converter would write it."""
    import gguf
    with open(os.path.join(HERE, name, "tokenizer.json")) as f:
        data = json.load(f)
    vocab = dict(data["model"]["vocab"])
    kind = {a["content"]: gguf.TokenType.CONTROL if a["special"] else gguf.TokenType.USER_DEFINED for a in data["added_tokens"]}
    texts = sorted(vocab, key=vocab.get)
    w = gguf.GGUFWriter(os.path.join(HERE, name, "tokenizer.gguf"), "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(texts)
    w.add_token_types([kind.get(t, gguf.TokenType.NORMAL) for t in texts])
    w.add_token_merges([" ".join(m) for m in data["model"]["merges"]])
    w.add_bos_token_id(vocab["<|begin|>"])
    w.add_add_bos_token(bos)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def of_gguf(path):
    """SmolLM2's tokenizer.json has these two pre-tokenizers; vocabulary and merges are read from the file by the gguf package."""
    import gguf
    fields = gguf.GGUFReader(path).fields
    value = lambda key: fields["tokenizer.ggml." + key].contents()
    texts = value("tokens")
    t = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(texts)}, merges=[tuple(m.split(" ")) for m in value("merges")]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(w, normalized=False, special=True) for w, k in zip(texts, value("token_type")) if k == 3])
    return t


def of_spm_gguf(path):
    """Llama 2's vocabulary as transformers makes a tokenizer of a SentencePiece model (SentencePieceExtractor): each token of two parts
    that are tokens is a merge, the best score first; Llama 2's own normalizer and decoder."""
    import gguf
    fields = gguf.GGUFReader(path).fields
    texts, scores, kinds = (fields["tokenizer.ggml." + key].contents() for key in ("tokens", "scores", "token_type"))
    vocab = {w: i for i, w in enumerate(texts)}
    merges = []
    for w, i in vocab.items():
        pairs = [(w[:k], w[k:]) for k in range(1, len(w)) if w[:k] in vocab and w[k:] in vocab]
        merges += [(-scores[i], vocab[a], vocab[b], a, b) for a, b in pairs]
    t = Tokenizer(models.BPE(vocab=vocab, merges=[m[3:] for m in sorted(merges)], byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken(w, normalized=False, special=True) for w, k in zip(texts, kinds) if k in (2, 3)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def golden(name, tokenizer, raw, text):
    def run(special, plain):
        tokenizer.encode_special_tokens = plain
        return [tokenizer.encode(s, add_special_tokens=special).ids for s in text]
    ids, special, plain = run(False, False), run(True, False), run(False, True)
    tokenizer.encode_special_tokens = False
    decoded = [tokenizer.decode(i, skip_special_tokens=True) for i in ids]
    out = {"ids": ids, "special": None if special == ids else special, "plain": [p if p != i else None for p, i in zip(plain, ids)],
           "text": [d if d != s else None for d, s in zip(decoded, text)]}
    if isinstance(tokenizer.decoder, decoders.ByteLevel):
        dice = random.Random(7)
        lists = [[dice.randrange(min(tokenizer.get_vocab_size(), 400)) for _ in range(dice.randrange(1, 24))] for _ in range(60)]
        out["random"] = [[r, tokenizer.decode(r, skip_special_tokens=True)] for r in lists]
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


def main():
    raw = strings()
    text = [s.decode("utf-8", errors="replace") for s in raw]
    with open(os.path.join(HERE, "strings.json"), "w") as f:
        json.dump([s.hex() for s in raw], f, indent=0)
        f.write("\n")
    if not os.path.isdir(os.path.join(HERE, "llama3")):
        make(corpus(text))
        write_gguf("llama3", "llama-bpe", True)
        write_gguf("smollm", "smollm", False)
    for name in sorted(os.listdir(HERE)):
        if os.path.isdir(os.path.join(HERE, name)):
            golden(name, Tokenizer.from_file(os.path.join(HERE, name, "tokenizer.json")), raw, text)
    golden("jargon-moe", Tokenizer.from_file(os.path.join(sys.argv[1], "tokenizer.json")), raw, text)
    golden("deepseek", Tokenizer.from_file(sys.argv[2]), raw, text)
    golden("smollm2", of_gguf(sys.argv[3]), raw, text)
    golden("llama-spm", of_spm_gguf(os.path.join(sys.argv[4], "ggml-vocab-llama-spm.gguf")), raw, text)
    print(len(raw), "strings")


if __name__ == "__main__":
    main()
