#!/bin/bash
# A batch on two stages with --report and --trace, one that is told to end, and `run`: both files are whole, hold every rank, no text of a
# request becomes markup, and the results are those of a batch without either.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export SOURCE_DATE_EPOCH=1700000000

for i in $(seq 60); do
	echo "{\"custom_id\": \"<i>&$i\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"bug: number $i\", \"max_tokens\": $((i % 20 + 3)), \"ignore_eos\": true}}"
done >"$work/in<b>.jsonl"
batch=(batch --model "$MODEL" --input "$work/in<b>.jsonl")
files=(--report "$work/r.html" --trace "$work/t.json")
"$SHARDRUN" "${batch[@]}" --quiet --output "$work/want" || { failed "without a report: status $?"; finish; }

count() { grep -c -- "$1" "$2"; }

# JSON whose events stand one a line: the shape, and of each rank a span of every kind that its stage has.
whole_trace() {                                     # NAME
	head -n 1 "$work/t.json" | grep -q '^{"displayTimeUnit":"ms","traceEvents":\[$' && tail -n 1 "$work/t.json" | grep -q '^\],"otherData":{.*}}$' ||
		failed "$1: the trace has not its beginning and end"
	[ "$(sed '1d;$d' "$work/t.json" | grep -cvE '^\{"ph":"[XM]",.*\}\},?$')" = 0 ] || failed "$1: not all of the trace is events"
	[ "$(sed '1d;$d' "$work/t.json" | grep -cv ',$')" = 1 ] || failed "$1: events are not apart by commas"
	if command -v python3 >/dev/null; then
		python3 -m json.tool "$work/t.json" >/dev/null || failed "$1: the trace is no JSON"
	fi
}

whole_page() {                                      # NAME
	grep -q '^<!DOCTYPE html>' "$work/r.html" && [ "$(tail -n 1 "$work/r.html")" = "</html>" ] || failed "$1: the page is not whole"
	grep -qiE '<(script|link|img|iframe)|https?://|@import|url\(' "$work/r.html" && failed "$1: the page wants something from elsewhere"
	grep -qE '<i>&|<b>\.jsonl' "$work/r.html" && failed "$1: text became markup"
	grep -qE '[^a-z](nan|inf)[^a-z]' "$work/r.html" && failed "$1: the page shows what is no number"
	[ "$(stat -c %a "$work/r.html" "$work/t.json" | sort -u)" = 600 ] || failed "$1: others can read it"
}

"$here/run.sh" 2 "$SHARDRUN" "${batch[@]}" --pp 2 --output "$work/out" "${files[@]}" 2>"$work/err" || { failed "two stages: status $?"; cat "$work/err"; }
cmp -s "$work/want" "$work/out" || failed "two stages: other results with a report"
grep -q "batch: 60 requests, 0 of them errors; 0 results were there before, 60 are now" "$work/err" || { failed "no summary"; cat "$work/err"; }
whole_trace "two stages"
whole_page "two stages"
steps=$(grep -c '"name":"results"' "$work/t.json")
[ "$steps" -gt 20 ] || failed "two stages: $steps steps only"
for event in '"decide","pid":0,"tid":0' '"step","pid":0,"tid":0' '"step","pid":0,"tid":1' '"embed","pid":0,"tid":0' \
	'"wait for rows","pid":0,"tid":1' '"layers","pid":0,"tid":0' '"layers","pid":0,"tid":1' '"send rows","pid":0,"tid":0' \
	'"sample","pid":0,"tid":1'; do
	[ "$(count "\"name\":$event" "$work/t.json")" = "$steps" ] || failed "not $steps times $event"
done
grep -q '"dropped_spans":0' "$work/t.json" || failed "spans were dropped"
for text in 'Answer tokens' 'Time to the first token' '&lt;i&gt;&amp;' '&lt;b&gt;.jsonl' 'rank 1' 'waiting for rows' 'KV cache' \
	'2 ranks on 1 node: tp 1, pp 2' 'Every line of the input has its result'; do
	grep -qF "$text" "$work/r.html" || failed "the page does not say: $text"
done

"$here/run.sh" 2 "$SHARDRUN" "${batch[@]}" --tp 2 --output "$work/cut" --time-limit 0:0:0 "${files[@]}" 2>"$work/err"
[ $? = 75 ] || { failed "no time: not status 75"; cat "$work/err"; }
whole_trace "no time"
whole_page "no time"
grep -q "the same command goes on with what is left" "$work/r.html" || failed "no time: the page does not say so"

"$SHARDRUN" run --model "$MODEL" --prompt "bug: secret" --max-tokens 8 --quiet "${files[@]}" >/dev/null || failed "run: status $?"
whole_trace run
whole_page run
grep -q "secret" "$work/r.html" "$work/t.json" && failed "run: the prompt is in a file"
"$SHARDRUN" "${batch[@]}" --output "$work/no" --report /nowhere/r.html 2>"$work/err"
[ $? = 1 ] && [ ! -e "$work/no" ] && grep -q "/nowhere/r.html cannot be written" "$work/err" || { failed "a page that cannot be written"; cat "$work/err"; }
finish
