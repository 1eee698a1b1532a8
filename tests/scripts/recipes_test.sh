#!/usr/bin/env bash
# recipes_test.sh plan|run BUILD ROOT
#
# plan: every recipe in configs/recipes plans on the cluster that its comment names, with a row for each of its ranks.
# run: recipes of one, two, six and eight ranks run here, and all give the continuation that transformers gives (expected.json
# of the bundled model) with one digest of the logits.
set -u
what=$1 build=$2 root=$3
cd "$root" || exit 1
. configs/mpi-environment.sh
mpi_environment recipes_test
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }

plan_all() {
	local recipe cluster n=0 ranks rows
	for recipe in configs/recipes/*.yaml; do
		n=$((n + 1))
		cluster=$(sed -n 's/^# cluster: *//p' "$recipe")
		"$build/shardrun" plan "$recipe" --cluster "$cluster" >"$room/out" 2>"$room/err" || fail "$recipe: $(cat "$room/err")"
		ranks=$(awk '/^  (nodes|ranks_per_node):/ { n = n ? n * $2 : $2 } END { print n }' "$recipe")
		rows=$(grep -cE '^ *[0-9]+ .* [kMG]?B$' "$room/out")
		[ "$ranks" = "$rows" ] || { fail "$recipe: $rows rows for $ranks ranks"; cat "$room/out"; }
	done
	[ $n -ge 10 ] || fail "only $n recipes"
	echo "$n recipes planned"
}

# Recipes in one arithmetic give one digest on any layout; the model's BF16 weights have two.
run_one() {                                         # RANKS NAME [OPTION ...]
	local digest ranks=$1 name=$2
	shift 2
	mpirun -n "$ranks" --oversubscribe "$build/shardrun" run "configs/recipes/$name.yaml" "$@" --quiet --json --prompt recursion: \
		--max-tokens 32 --temperature 0 --kv-type f32 >"$room/out" 2>"$room/err" </dev/null || fail "$name: $(cat "$room/err")"
	grep -qF '"text": " n. See recursion. See also tail recursion."' "$room/out" || fail "$name: $(cat "$room/out")"
	digest=$(grep -oE '"logits_digest": "[0-9a-f]{16}"' "$room/out")
	echo "$name on $ranks ranks: $digest"
	[ -n "$digest" ] && [ "$digest" = "${first:=$digest}" ] || fail "$name: another digest than the recipe before"
}

case $what in
plan) plan_all;;
run)
	grep -qF '"text": " n. See recursion. See also tail recursion."' configs/models/jargon-moe/expected.json || fail "expected.json"
	run_one 1 laptop
	run_one 4 one-node
	run_one 6 long-prompts
	run_one 8 two-nodes
	run_one 8 experts-over-the-cluster
	default=$first first=
	run_one 2 exact-arithmetic
	run_one 1 laptop --set runtime.activations=f32
	[ "$first" != "$default" ] || fail "f32 and the default arithmetic have one digest";;
esac
exit $failed
