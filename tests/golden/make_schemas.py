#!/usr/bin/env python3
"""Documents, and whether they are valid by a schema, as the jsonschema package says.

    python make_schemas.py

Writes schemas/golden.json, which tests/unit/test_json_schema.c reads: cases of {schema, documents: [[text, valid], ..], other: [text, ..]}.
`documents` are written as docs/STRUCTURED-OUTPUT.md says (order of properties, white space, lengths of numbers), so that they
are read exactly when they are valid; most are changed at random from those given here. `other` are valid, but written otherwise.
"""
import copy
import json
import pathlib
import random

import jsonschema

ROOM = pathlib.Path(__file__).resolve().parent
CHANGES = 60
POOL = [None, True, False, 0, 1, -1, 7, 12, 100, -40, 0.5, -2.25, 1.0625, 99.5, "", "a", "ab", "abc", "red", "blue", "é", "日本語", "😀😀",
        "x" * 12, 'q"\\\n', [], [1], [1, 2, 3], ["a"], ["a", 1], {}, {"a": 1}, {"name": "x"}]


def obj(properties, required=None, others=False, **more):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required,
            "additionalProperties": others} | more


TREE = {"$ref": "#/$defs/node", "$defs": {"node": obj({"v": {"type": "integer"}, "kids": {
    "type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3}}, ["v"])}}
LIST = obj({"head": {"type": "number"}, "tail": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}})
PERSON = obj({"name": {"type": "string", "minLength": 1, "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
              "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
              "colour": {"enum": ["red", "green", None, 3, {"a": [1]}]}, "ok": {"type": ["boolean", "null"]}})

# schema, valid documents, texts that are valid but written otherwise
CASES = [
    (PERSON, [{"name": "Bo", "age": 7, "tags": ["x", ""], "colour": {"a": [1]}, "ok": None}],
     ['{"age":7,"name":"Bo","tags":["x"],"colour":3,"ok":true}', '{"name" :"Bo","age":7,"tags":["x"],"colour":3,"ok":true}']),
    (TREE, [{"v": 1, "kids": [{"v": 2}, {"v": 3, "kids": [{"v": -4, "kids": []}]}]}], ['{"kids":[],"v":1}']),
    (LIST, [{"head": 1.5, "tail": {"head": -2, "tail": {"head": 0, "tail": None}}}], []),
    (obj({"a": {"type": "string"}, "b": {}, "c": {"type": "null"}}, ["b"]), [{"a": "x", "b": [1, {"z": 2.5}], "c": None}, {"b": 1}], []),
    (obj({"a": {"type": "string"}, "ab": {"type": "boolean"}, "é": {"const": 1}}, [], {"type": "integer"}),
     [{"a": "x", "ab": True, "é": 1, "abc": 3, "b": -1, "": 2}, {}], ['{"\\u0062":1}']),
    (obj({"k": {"type": "integer"}}, ["k", "z"], True), [{"k": 1, "z": [None]}, {"k": 1, "z": 0, "more": {}}], []),
    ({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}}, [{"x": [1, 2.5], "y": []}], []),
    ({"type": "object"}, [{"any": [1, {"thing": None}]}], []),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "boolean"}, "minItems": 1},
     [["a", 1, True, False], ["a"], ["a", 2]], ['["a" ,1]']),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}, [["a", 1], [], ["a"]], []),
    ({"type": "array", "minItems": 2, "maxItems": 4, "items": {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}},
     [[1, "a"], [1, 2, "ab", 4]], []),
    ({"anyOf": [{"type": "string"}, obj({"a": {"type": "integer"}}), {"type": "array", "items": {"$ref": "#"}}]},
     ["x", {"a": 1}, ["x", ["y", {"a": 2}]]], []),
    ({"oneOf": [{"const": "on"}, {"const": "off"}, {"type": "null"}]}, ["on", "off", None], []),
    ({"enum": ["abc", "abd", "ab", 1, 12, 1.5, True, None, [], [1, "x"], {}, {"a": {"b": 0}}]}, ["abc", 12, [1, "x"], {"a": {"b": 0}}], []),
    ({"type": "integer", "minimum": -17, "maximum": 230}, [-17, -9, 0, 5, 99, 100, 199, 230], ["5.0", "-0"]),
    ({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 1000}, [10, 11, 99, 100, 999], []),
    ({"type": "integer", "maximum": -5}, [-5, -6, -10, -12345], []),
    ({"type": "integer", "minimum": 2.5, "maximum": 7.5}, [3, 7], []),
    ({"type": "number", "minimum": 0, "maximum": 1}, [0, 1, 0.5, 0.999, 1.0, 0.0], ["1e-1"]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 10}, [0.001, 1, 9.99], []),
    ({"type": "number", "minimum": -3, "exclusiveMaximum": -1}, [-3, -2.5, -1.5, -3.0], []),
    ({"type": "number", "exclusiveMinimum": -2}, [-1.99, 0, 5, 12345.5], []),
    ({"type": "number"}, [0, -1.5, 123456.75, 10], ["1234567890123456789012"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "日本語", "😀😀"], []),
    ({"type": ["string", "integer"], "minLength": 2, "minimum": 10}, ["ab", 10, 11], []),
    ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "string", "format": "date", "title": "t"}}}, ["x"], []),
    ({"properties": {"a": {"type": "integer"}}, "additionalProperties": False, "type": "object"}, [{"a": 1}, {}], []),
    ({"const": {"deep": [1, 2, {"x": None}]}}, [{"deep": [1, 2, {"x": None}]}], []),
]


def places(value, at=()):
    yield at
    if isinstance(value, list):
        for i, v in enumerate(value):
            yield from places(v, at + (i,))
    if isinstance(value, dict):
        for k, v in value.items():
            yield from places(v, at + (k,))


def change(value):
    at = random.choice(list(places(value)))
    if not at:
        return copy.deepcopy(random.choice(POOL))
    value = copy.deepcopy(value)
    holder = value
    for step in at[:-1]:
        holder = holder[step]
    kind = random.randrange(4)
    if kind == 0:
        del holder[at[-1]]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(at[-1], copy.deepcopy(random.choice(POOL)))
    elif kind == 1:
        holder[random.choice(["a", "abc", "new", "name"])] = copy.deepcopy(random.choice(POOL))
    else:
        holder[at[-1]] = copy.deepcopy(random.choice(POOL))
    return value


def order(schema, value):
    """Properties as the schema has them, others after those."""
    if isinstance(value, list):
        return [order(schema, v) for v in value]
    if not isinstance(value, dict):
        return value
    names = []

    def collect(s):
        if isinstance(s, dict):
            names.extend(s.get("properties", {}))
            names.extend(s.get("required", []))
            for v in s.values():
                collect(v)
        elif isinstance(s, list):
            for v in s:
                collect(v)
    collect(schema)
    known = [k for k in dict.fromkeys(names) if k in value]
    return {k: order(schema, value[k]) for k in known + [k for k in value if k not in known]}


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def has_values(schema):
    """Values of enum and const are written without white space."""
    return '"enum"' in json.dumps(schema) or '"const"' in json.dumps(schema)


def write(value):
    style = random.randrange(3)
    if style == 0:
        return compact(value)
    return json.dumps(value, indent=2 if style == 1 else None, ensure_ascii=random.random() < 0.3)


def main():
    random.seed(20261201)
    cases = []
    for schema, good, other in CASES:
        valid = jsonschema.Draft202012Validator(schema).is_valid
        texts = {}
        for value in good:
            assert valid(value), (schema, value)
            texts[compact(value) if has_values(schema) else write(value)] = True
        for _ in range(CHANGES):
            value = random.choice(good)
            for _ in range(random.randint(1, 2)):
                value = change(value)
            # of names that are free, those with escapes are not written
            whole = json.dumps(value)
            if '\\' in whole and "enum" not in schema and any('\\' in json.dumps(k) for k in names_of(value)):
                continue
            text = compact(order(schema, value)) if has_values(schema) else write(order(schema, value))
            texts[text] = valid(value)
        for text in other:
            assert valid(json.loads(text)), (schema, text)
        cases.append({"schema": schema, "documents": [[t, v] for t, v in texts.items()], "other": other})
    with open(ROOM / "schemas" / "golden.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases) + "\n]\n")
    n = sum(len(c["documents"]) for c in cases)
    print(n, "documents,", sum(v for c in cases for _, v in c["documents"]), "valid")


def names_of(value):
    if isinstance(value, dict):
        return list(value) + [n for v in value.values() for n in names_of(v)]
    return [n for v in value for n in names_of(v)] if isinstance(value, list) else []


main()
