# What the tests of the whole program share; for bash, sourced. SHARDRUN and MODEL name the program and the bundled model.
# `work` is a directory of the test's own that goes with it.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${WORK_BELOW:-${TMPDIR:-/tmp}}/shardrun-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

failed() {                                          # WORDS... [<stderr of the run]: goes on
	echo "FAILED: $*"
	failures=$((failures + 1))
}

finish() {
	[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
	echo ok
	exit 0
}

# The parts of a report that no layout may change, one a line.
answers_of() {                                      # REPORT.json
	grep -oE '"(tokens|finish_reason|logits_digest)": (\[[^]]*\]|"[^"]*")' "$1"
}

# bytes of an axis, or what else the second word names.
traffic_of() {                                      # REPORT.json AXIS KEY
	grep -o "{\"axis\": \"$2\"[^}]*}" "$1" | sed -n "s/.*\"$3\": \"\{0,1\}\([a-z0-9]*\).*/\1/p"
}

# The first N prompts of expected.json, a line each, and the first M of the tokens that another implementation gave.
expected_prompts() { sed -n 's/^  "prompt": "\(.*\)",$/\1/p' "$MODEL/expected.json" | head -n "$1"; }
expected_tokens() {                                 # N M
	awk -v n="$1" -v m="$2" '
		/"greedy": \[/ { on = ++seen <= n; k = 0; line = "\"tokens\": ["; next }
		on && /\]/ { print line "]"; on = 0 }
		on && k < m { gsub(/[ ,]/, ""); line = line (k++ ? ", " : "") $0 }' "$MODEL/expected.json"
}

# Several prompts and tokens, enough to fill and to leave pages, in a few steps. Words are appended.
run_words=(run --model "$MODEL" --json --max-tokens 10 --set generation.ignore_eos=true)

# The report that all others are held against: one process without a launcher, and first of all right.
make_reference() {
	expected_prompts 4 >"$work/prompts"
	[ "$(wc -l <"$work/prompts")" = 4 ] || { failed "expected.json gives no 4 prompts"; finish; }
	"$SHARDRUN" "${run_words[@]}" --quiet <"$work/prompts" >"$work/one.json" || { failed "one rank: status $?"; finish; }
	answers_of "$work/one.json" >"$work/one"
	grep tokens "$work/one" >"$work/one.tokens"
	expected_tokens 4 10 | diff - "$work/one.tokens" || { failed "one rank: not the tokens of transformers"; finish; }
	[ "$(grep -c logits_digest "$work/one")" = 4 ] || { failed "one rank: no 4 digests"; finish; }
}

# Holds the report against the reference.
same_answers() {                                    # REPORT.json NAME
	answers_of "$1" | diff "$work/one" - >"$work/diff" || { failed "$2: other answers than one rank's"; cat "$work/diff"; }
}
