#!/bin/sh
# usage: plan.sh SHARDRUN
# Every recipe of configs/recipes is planned against the cluster that its "# cluster:" line names; the plan must use every
# layer, head and expert, and as many ranks as its layout says.
shardrun=$1
cd "$(dirname "$0")/../.." || exit 1
failed=0 n=0
out=$(mktemp) err=$(mktemp)
for recipe in configs/recipes/*.yaml; do
	cluster=$(sed -n 's/^# cluster: *//p' "$recipe" | head -n 1)
	if [ -z "$cluster" ]; then
		echo "FAILED: $recipe has no \"# cluster:\" line"
		failed=1
		continue
	fi
	if ! "$shardrun" plan "$recipe" --cluster "$cluster" >"$out" 2>"$err"; then
		echo "FAILED: $recipe on $cluster: $(cat "$err")"
		failed=1
	elif ! awk '
		/^plan: / { ranks = $2 }
		/^ *[0-9]+ / { rows++ }
		END { exit !(ranks > 0 && rows == ranks) }' "$out"; then
		echo "FAILED: $recipe: the table does not have a row for each rank"
		cat "$out"
		failed=1
	else
		echo "$recipe: $(grep '^plan: ' "$out")"
	fi
	n=$((n + 1))
done
rm -f "$out" "$err"
[ $n -ge 10 ] || { echo "FAILED: only $n recipes"; failed=1; }
exit $failed
