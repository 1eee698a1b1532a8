#!/bin/bash
# usage: formats.sh
# Answers that are held to JSON or a schema are the same, byte for byte, on every layout as on one process.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export SOURCE_DATE_EPOCH=1700000000
person='{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":500},\"b\":{\"type\":\"string\",\"maxLength\":9},\"c\":{\"type\":\"array\",\"items\":{\"enum\":[\"x\",\"y\"]},\"maxItems\":3}},\"required\":[\"a\",\"b\",\"c\"]}'
schema="{\"type\":\"json_schema\",\"json_schema\":{\"schema\":${person//\\/}}}"
for i in $(seq 24); do
	case $((i % 3)) in
	0) echo "{\"custom_id\":\"n$i\",\"prompt\":\"bug: $i\",\"n\":3,\"temperature\":1,\"seed\":$i,\"max_tokens\":60,\"response_format\":$schema}";;
	1) echo "{\"custom_id\":\"g$i\",\"prompt\":\"bug: $i\",\"max_tokens\":40,\"response_format\":{\"type\":\"json_object\"}}";;
	2) echo "{\"custom_id\":\"f$i\",\"prompt\":\"patch: $i\",\"temperature\":0.9,\"seed\":$i,\"max_tokens\":$((20 + i))}";;
	esac
done >"$work/in"
"$SHARDRUN" batch --model "$MODEL" --quiet --input "$work/in" --output "$work/want" || { failed "one process: status $?"; finish; }
[ "$(grep -c '"status_code":200' "$work/want")" = 24 ] || failed "one process: not 24 answers"
[ "$(grep -o '"text":"{[^}]*\\"c\\":[^}]*}","' "$work/want" | wc -l)" -ge 12 ] || failed "one process: few documents are whole"
for words in "4 --tp 2 --pp 2" "2 --dp 2" "3 --tp 3" "2 --pp 2"; do
	rm -rf "$work/out" "$work/out.journal"
	"$here/run.sh" ${words%% *} "$SHARDRUN" batch --model "$MODEL" --quiet --input "$work/in" --output "$work/out" ${words#* } \
		2>"$work/err" </dev/null || failed "$words: status $?" <"$work/err"
	cmp -s "$work/want" "$work/out" || failed "$words: other results than one process has"
done
finish
