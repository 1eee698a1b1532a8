#!/bin/bash
# What goes in and comes out of four ranks: prompts from stdin and files, logits as a file, a reader that goes away, and
# one sentence with the right status for everything that cannot be done.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ranks() {                                           # the program's WORDS...; stderr lies in $work/err
	timeout --kill-after=2 20 "$here/run.sh" 4 "$SHARDRUN" "$@" 2>"$work/err"
}

# --- what goes in ---

quick=(run --model "$MODEL" --quiet --max-tokens 10 --set generation.ignore_eos=true)

"$SHARDRUN" "${quick[@]}" --prompt bug: >"$work/want"
[ "$(wc -c <"$work/want")" -gt 10 ] || failed "one rank answers $(cat "$work/want")"
same_text() {                                       # NAME < what was printed
	cat >"$work/text"
	cmp "$work/want" "$work/text" || { failed "$1: other text than one rank's"; cat "$work/text" "$work/err"; }
}
ranks "${quick[@]}" --prompt bug: </dev/null | same_text --prompt
printf 'bug:' | ranks "${quick[@]}" | same_text "stdin without a newline"
printf '\nbug:\r\n' | ranks "${quick[@]}" - | same_text "stdin with an empty line"
printf 'bug:' >"$work/prompt"
ranks "${quick[@]}" --prompt-file "$work/prompt" </dev/null | same_text --prompt-file

make_reference
cat "$work/prompts" | ranks "${run_words[@]}" --tp 2 --pp 2 >"$work/report"
same_answers "$work/report" "four lines through a pipe"

# --- logits as a file ---

ids=0,66,427,26,292,14
"$SHARDRUN" "${quick[@]}" --prompt-ids $ids --logits "$work/one.npy" </dev/null >"$work/want"
for layout in "--tp 4" "--tp 2 --pp 2" "--dp 4" "--pp 4"; do
	ranks "${quick[@]}" --prompt-ids $ids --logits "$work/four.npy" $layout </dev/null | same_text "--prompt-ids $layout"
	cmp "$work/one.npy" "$work/four.npy" || failed "--logits $layout: other bits than one rank's"
	rm -f "$work/four.npy"
done
[ "$(head -c 6 "$work/one.npy" | tail -c 5)" = NUMPY ] || failed "--logits: no NumPy file"
[ "$(stat -c %s "$work/one.npy")" -gt $((6 * 1000 * 4)) ] || failed "--logits: too few for 6 positions"

# --- what cannot be done ---

refused() {                                         # STATUS PATTERN WORDS...
	local want=$1 pattern=$2 status
	shift 2
	ranks run "$@" </dev/null >"$work/out"
	status=$?
	[ "$status" = "$want" ] || failed "$*: status $status, not $want"
	[ "$(grep -c '^shardrun:' "$work/err")" = 1 ] && grep -qE "^shardrun: .*$pattern" "$work/err" ||
		{ failed "$*: not one sentence with $pattern"; cat "$work/err"; }
	# beside it only what mpirun says of the status: in lines of its own, between rules
	awk '/^-----/ { in_notice = !in_notice; next } !in_notice && NF && !/^shardrun:/ { print; bad = 1 } END { exit bad }' \
		"$work/err" || failed "$*: more was said"
	[ ! -s "$work/out" ] || failed "$*: something on stdout"
}
refused 2 "nowhere.yaml: cannot be opened" "$work/nowhere.yaml"
refused 2 "unknown option --wrong" --model "$MODEL" --wrong
refused 2 "max-tokens: found \"x\"" --model "$MODEL" --max-tokens x
refused 2 "unknown key \"generation.bad\"" --model "$MODEL" --set generation.bad=1
refused 2 "there is no prompt" --model "$MODEL"
refused 1 "prompt: cannot be opened" --model "$MODEL" --prompt-file "$work/no/prompt"
refused 4 "there is no such model" --model "$work/nowhere" --prompt a
refused 3 "nearest layouts of 4 ranks that work are tp 4 " --model "$MODEL" --prompt a --tp 7
refused 3 "nearest layouts of 4 ranks that work are tp " --model "$MODEL" --prompt a --ep 3
refused 3 "nearest layouts of 4 ranks that work are tp " --model "$MODEL" --prompt a --dp 3
mkdir "$work/broken"
cp "$MODEL"/*.json "$work/broken"
head -c 100000 "$MODEL/model.safetensors" >"$work/broken/model.safetensors"
refused 4 "model.safetensors: " --model "$work/broken" --prompt a
refused 1 "cannot be written" --model "$MODEL" --quiet --json --max-tokens 1 --prompt-ids 0,1 --logits "$work/no/logits.npy"

# --- a reader that goes away ---

for how in "" --json; do
	( "$SHARDRUN" "${quick[@]}" --prompt bug: $how --max-tokens 100 2>"$work/err" </dev/null; echo $? >"$work/status" ) | head -c 0
	[ "$(cat "$work/status")" = 1 ] || failed "one rank, no reader, $how: status $(cat "$work/status")"
	[ "$(grep -c '^shardrun: standard output cannot be written' "$work/err")" = 1 ] ||
		{ failed "one rank, no reader, $how: no sentence"; cat "$work/err"; }
	# Here mpirun holds the pipe, and ends the job itself; a rank may say that it was told to.
	( ranks "${quick[@]}" --prompt bug: $how --max-tokens 100 </dev/null; echo $? >"$work/status" ) | head -c 0
	[ "$(cat "$work/status")" -lt 124 ] || failed "four ranks, no reader, $how: did not end by itself"
	[ "$(grep -c '^shardrun:' "$work/err")" -le 1 ] || { failed "four ranks, no reader, $how"; cat "$work/err"; }
done
"$SHARDRUN" "${quick[@]}" --prompt bug: </dev/null >/dev/full 2>"$work/err"
[ $? = 1 ] && grep -q '^shardrun: standard output cannot be written: No space' "$work/err" || failed "a full disk: no sentence"
finish
