#!/usr/bin/env bash
# Each rank's peak memory is at most its weights and KV cache, as the plan names them, + 15 % + 64 MiB. All memory that the
# process ever held at once counts, MPI's too (Open MPI 4.1 takes some 6 MB of a rank of two, shared pages included).
# Words: MODEL ("smollm2", "moe"), RANKS, tokens of the prompt, options.
set -u
. "$(dirname "$0")/common.sh"
root=$(cd "$here/../.." && pwd)
case $1 in
smollm2) model=$(sh "$root/tests/download.sh" smollm2 "$root/build/cache") || exit 77 ;;
moe) model=$MODEL ;;
esac
ranks=$2 tokens=$3
shift 3
ids=$(awk -v n="$tokens" 'BEGIN { for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", 5 + i * 37 % 900 }')
command=("$PEAK_MEMORY" "$work" "$SHARDRUN" run --model "$model" --prompt-ids "$ids" --max-tokens 4 --ignore-eos "$@")
if [ "$ranks" = 1 ]; then
	"${command[@]}" >"$work/out" 2>"$work/err"
else
	"$here/run.sh" "$ranks" "${command[@]}" >"$work/out" 2>"$work/err"
fi || { failed "status $?"; cat "$work/err"; finish; }

# The plan's table: rank .. weights MB, KV cache MB.
for ((rank = 0; rank < ranks; rank++)); do
	row=$(grep -E "^ *$rank  .* MB +[0-9.]+ MB\$" "$work/err")
	peak=$(cat "$work/rank-$rank" 2>/dev/null)
	awk -v rank="$rank" -v row="$row" -v kib="$peak" 'BEGIN {
		n = split(row, f, " ")
		held = f[n - 3] + f[n - 1]; peak = kib * 1024 / 1e6; most = held * 1.15 + 67.1
		printf "rank %d: weights and KV cache %.1f MB, peak %.1f MB, allowed %.1f MB\n", rank, held, peak, most
		exit !(held > 1 && peak > held && peak <= most) }' || failed "rank $rank (\"$row\", ${peak:-no} KiB)"
done
finish
