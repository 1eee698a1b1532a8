#!/bin/bash
# usage: layouts.sh all|LAYOUT...          LAYOUT: tp.pp.ep.dp
# Every layout of the bundled model, or those given, runs once under mpirun and answers with the bits of one rank.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# tp and pp end at the 6 heads and 6 layers; ep divides the ranks of a stage.
every_layout() {                                    # up to this many ranks
	local tp pp ep dp
	for ((tp = 1; tp <= 6; tp++)); do
		for ((pp = 1; pp <= 6 && tp * pp <= $1; pp++)); do
			for ((dp = 1; tp * pp * dp <= $1; dp++)); do
				for ((ep = 1; ep <= tp * dp; ep++)); do
					[ $((tp * dp % ep)) != 0 ] || echo "$tp.$pp.$ep.$dp"
				done
			done
		done
	done
}

try() {                                             # LAYOUT
	local tp pp ep dp ranks
	IFS=. read -r tp pp ep dp <<<"$1"
	ranks=$((tp * pp * dp))
	if ! "$here/run.sh" $ranks "$SHARDRUN" "${run_words[@]}" --tp "$tp" --pp "$pp" --ep "$ep" --dp "$dp" \
		<"$work/prompts" >"$work/report" 2>"$work/err"; then
		failed "$1: it ends badly"
		cat "$work/err"
		return
	fi
	same_answers "$work/report" "$1"
	grep -qF "\"layout\": {\"ranks\": $ranks, \"tp\": $tp, \"pp\": $pp, \"ep\": $ep, \"dp\": $dp," "$work/report" ||
		failed "$1: the report shows another layout: $(grep -o '"layout": {[^}]*}' "$work/report")"
}

make_reference
layouts=$*
[ "$layouts" != all ] || layouts=$(every_layout 8)
for layout in $layouts; do
	try "$layout"
done
echo "$(echo $layouts | wc -w) layouts"
finish
