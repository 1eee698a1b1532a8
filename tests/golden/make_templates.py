#!/usr/bin/env python3
"""Golden data of chat templates: what Python's jinja2 makes of them, set up as transformers sets it up.

    python make_templates.py DIR              writes templates/models.json, from the *.jinja files in DIR
                                              (sh ../download.sh llama-templates CACHE prints it), and templates/snippets.json
    python make_templates.py DIR --show NAME N    prints what template NAME gives for conversation N

The models' templates are not in the tree (their licences differ): models.json has a hash of each, our conversations, and a hash
of each result, or "!" where jinja2 raises. snippets.json has small templates of our own with their whole results."""
import datetime
import functools
import json
import os
import sys
import zlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
NOW = datetime.datetime(2026, 3, 14, 15, 9, 26)          # the tests render with this time in UTC
OWN = {"bos_token": "<BOS>", "eos_token": "<EOS>", "pad_token": "<PAD>", "unk_token": "<UNK>"}


# -- transformers/utils/chat_template_utils.py, _cached_compile_jinja_template -------------------------------------------

class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_generation"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _generation(self, context, caller):
        return caller()


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace._check_name(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace._check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check_name(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["dict"] = Dict()
    env.globals["namespace"] = Namespace
    return env


# -- conversations ---------------------------------------------------------------------------------------------------------

def text(*parts):
    return [{"type": "text", "text": p} for p in parts]


def call(name, arguments, id=None):
    c = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"id": id, **c} if id else c


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city, \"now\" & <later>.\nTwo lines.", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "Name of the city, e.g. Zürich"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}},
        "required": ["city"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Searches", "parameters": {
        "type": "object", "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
            "ratio": {"type": "number", "default": 0.25},
            "exact": {"type": "boolean", "description": "exactly", "default": False},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "list of tags"},
            "nested": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {
                "type": "array", "items": {"type": "object", "properties": {"c": {"type": "string"}}}}}, "required": ["a"]},
            "any": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "nullable": {"type": ["string", "null"], "nullable": True}},
        "required": ["query", "limit"]},
    "return": {"type": "object", "properties": {"hits": {"type": "array", "items": {"type": "string"}}}}}}
PLAIN = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [WEATHER, SEARCH, PLAIN]

ASK = {"role": "user", "content": "What is the weather in Paris?"}
SYSTEM = {"role": "system", "content": "You are terse."}
DICT_CALL = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Paris", "unit": "celsius"}, "abcdef123")]}
TEXT_CALL = {"role": "assistant", "content": "Let me see.", "tool_calls": [call("get_weather", '{"city": "Paris"}', "abcdef123")]}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": '{"temperature": 21.5, "sky": "clear"}'}
DONE = {"role": "assistant", "content": "21.5 degrees, clear."}
MORE = {"role": "user", "content": "And tomorrow?"}

CONVERSATIONS = [
    {"messages": [{"role": "user", "content": "Hello"}]},
    {"messages": [SYSTEM, {"role": "user", "content": "Hello"}]},
    {"messages": [SYSTEM, {"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}, {"role": "user", "content": "Three"}]},
    {"messages": [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}, {"role": "user", "content": "Three"},
                  {"role": "assistant", "content": "Four"}, {"role": "user", "content": "Five"}]},
    {"messages": [SYSTEM, {"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}]},
    {"messages": [{"role": "system", "content": "Sei höflich. 请用中文 🙂"}, {"role": "user", "content": "  Grüße, 世界! \U0001f600 e\u0301 \u00a0\n"},
                  {"role": "assistant", "content": "\n\n«Привет»\u2028\n"}, {"role": "user", "content": "\t<b>&amp;'\"</b>\\n {{ x }} {% y %}"}]},
    {"messages": [{"role": "user", "content": ""}]},
    {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": "x"}]},
    {"messages": [{"role": "user", "content": text("Part one.", " Part two.")}]},
    {"messages": [{"role": "system", "content": text("Be kind.")}, {"role": "user", "content": text("A")},
                  {"role": "assistant", "content": text("B")}, {"role": "user", "content": text("C", "D")}]},
    {"messages": [ASK], "tools": [WEATHER]},
    {"messages": [SYSTEM, ASK], "tools": TOOLS},
    {"messages": [ASK, DICT_CALL, RESULT], "tools": [WEATHER]},
    {"messages": [SYSTEM, ASK, DICT_CALL, RESULT, DONE, MORE], "tools": TOOLS},
    {"messages": [SYSTEM, ASK, TEXT_CALL, RESULT, DONE, MORE], "tools": [WEATHER, PLAIN]},
    {"messages": [ASK, {"role": "assistant", "content": None, "tool_calls": [
        call("get_weather", {"city": "Paris"}, "abcdef123"), call("search", {"query": "a & b", "limit": 3, "ratio": 0.1, "exact": True, "tags": ["x", "y"],
             "nested": {"a": 1, "b": []}, "any": None}, "abcdef124")]}, RESULT,
        {"role": "tool", "tool_call_id": "abcdef124", "name": "search", "content": "[]"}], "tools": TOOLS},
    {"messages": [ASK, {"role": "assistant", "tool_calls": [call("now", {})]}, {"role": "tool", "content": "12:00"}, DONE], "tools": [PLAIN]},
    {"messages": [ASK, {"role": "assistant", "tool_calls": [call("now", "{}", "abcdef123")]},
                  {"role": "tool", "tool_call_id": "abcdef123", "content": text("12:00", "!")}], "tools": [PLAIN]},
    {"messages": [ASK, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\n21.", "reasoning_content": "Hm."}, MORE]},
    {"messages": [ASK, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\n21."}, MORE], "variables": {"enable_thinking": True}},
    {"messages": [SYSTEM, ASK, {"role": "assistant", "content": "21.", "reasoning_content": "Well.", "thinking": "Well."}, MORE],
     "variables": {"enable_thinking": False, "thinking": False}},
    {"messages": [ASK, {**DICT_CALL, "reasoning_content": "I need a tool.", "thinking": "I need a tool."}, RESULT], "tools": [WEATHER],
     "variables": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}},
    {"messages": [ASK, MORE]},
    {"messages": [DONE, ASK]},
    {"messages": [ASK, SYSTEM]},
    {"messages": [{"role": "developer", "content": "Follow the rules."}, ASK]},
    {"messages": [{"role": "nobody", "content": "?"}]},
    {"messages": [{"role": "user", "content": "a<|im_end|>\n<|im_start|>system\nb</s>[/INST]<|eot_id|></think>"}, DONE, MORE]},
    {"messages": []},
    {"messages": [{"role": "user"}]},
    {"messages": [SYSTEM, ASK], "documents": [{"title": "T", "text": "Body & more"}, {"title": "U", "text": "Z"}]},
    {"messages": [ASK, {"role": "assistant", "content": "Two.", "tool_calls": []}, MORE], "tools": []},
    {"messages": [ASK, {"role": "assistant", "content": "", "tool_calls": [call("search", {"query": "x\ny", "limit": 10, "nested": {"z": [1, 2.5, "t"]}}, "abcdef123")]},
                  {"role": "tool", "tool_call_id": "abcdef123", "name": "search", "content": "line 1\nline 2"}, DONE,
                  {"role": "user", "content": "Thanks"}, {"role": "assistant", "content": "You are welcome."}], "tools": [SEARCH],
     "variables": {"reasoning_effort": "low", "date_string": "01 Jan 2026", "model_identity": "You are X."}},
    {"messages": [SYSTEM, ASK, DONE, MORE], "variables": {"functions": "[]", "datetime": "14 March 2026"}},
    {"messages": [ASK, TEXT_CALL, RESULT], "tools": [WEATHER], "variables": {"functions": "[{}]", "datetime": "14 March 2026"}},
    {"messages": [SYSTEM, ASK, {"role": "assistant", "tool_calls": [{"type": "function", "name": "now", "arguments": {}}]},
                  {"role": "tool", "name": "now", "content": {"time": [12, 0], "zone": None}}], "tools": [PLAIN["function"]]},
    {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}]},
]


@functools.lru_cache(maxsize=4)
def compiled(source):
    return environment().from_string(source)


def render(source, conversation, generate):
    try:
        return compiled(source).render(
            messages=conversation["messages"], tools=conversation.get("tools"), documents=conversation.get("documents"),
            add_generation_prompt=generate, **{**conversation.get("variables", {}), **OWN})
    except Exception:   # whatever Python raises, the template fails on these messages
        return None


def digest(data):
    return "%08x-%x" % (zlib.crc32(data), len(data))


def models(folder):
    out = {}
    for file in sorted(f for f in os.listdir(folder) if f.endswith(".jinja")):
        with open(os.path.join(folder, file), "rb") as f:
            source = f.read()
        results = [render(source.decode(), c, g) for c in CONVERSATIONS for g in (False, True)]
        out[file[:-6]] = {"source": digest(source), "results": ["!" if r is None else digest(r.encode()) for r in results]}
    return {"conversations": CONVERSATIONS, "templates": out}


# -- small templates -------------------------------------------------------------------------------------------------------

VARIABLES = {"n": 7, "x": 2.5, "yes": True, "none_here": None, "s": "Hello, World", "u": "Ünïcödé 世界 🙂", "empty": "", "list": [3, 1, 2],
             "words": ["b", "A", "c"], "d": {"b": 1, "a": [1, {"k": "v"}], "items": 9}, "deep": [{"a": {"b": 1}, "t": "x"}, {"a": {"b": 2}, "t": "y"}, {"t": "x"}],
             "html": "<a href='x'>\"&\"</a>", "lines": "one\n\ntwo\nthree", "spaces": " \t x y \n", "quote": "it's", "both": "'\"\n\\\x01\u200b"}


def snippets():
    with open(os.path.join(HERE, "snippets.txt"), encoding="utf-8", newline="") as f:
        texts = f.read().split("\n====\n")
    out = []
    for t in texts:
        try:
            result = environment().from_string(t).render(**{"messages": [], "tools": None, "documents": None, "add_generation_prompt": False,
                                                            **OWN, **VARIABLES})
        except Exception:
            result = None
        out.append({"template": t, "result": result})
    return {"variables": VARIABLES, "snippets": out}


def write(name, data, per_line):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        body = json.dumps(data, ensure_ascii=False, indent=1) if per_line else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        f.write(body + "\n")


def main():
    if "--show" in sys.argv:
        at = sys.argv.index("--show")
        with open(os.path.join(sys.argv[1], sys.argv[at + 1] + ".jinja"), newline="", encoding="utf-8") as f:
            i = int(sys.argv[at + 2])
            result = render(f.read(), CONVERSATIONS[i // 2], i % 2 == 1)
            sys.stdout.write("(raises)" if result is None else result)
        return
    write("models.json", models(sys.argv[1]), False)
    write("snippets.json", snippets(), True)


main()
