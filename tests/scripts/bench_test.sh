#!/usr/bin/env bash
# What `bench --json` reports: the keys of docs/shardrun.1, each a number above 0; rows as asked for. And the text names them.
set -u
shardrun=$1 model=$2
failed=0
words=(bench --model "$model" --quiet --threads 1 --prompt-tokens 32 --new-tokens 4 --sequences 1,2)
report=$("$shardrun" "${words[@]}" --json) || { echo "FAILED: status $?"; exit 1; }
for key in read_gbps f32_gops int8_gops bf16_gops load_s read_probe_bytes token_weights_bytes prefill_tokens_per_s decode_tokens_per_s share_of_read_bandwidth share_of_arithmetic; do
	grep -qE "\"$key\": ([1-9]|0\.0*[1-9]|[0-9.]+e-)" <<<"$report" || { echo "FAILED: no $key above 0"; failed=1; }
done
number_of() { grep -oE "\"$1\": [0-9]+" <<<"$report" | grep -oE '[0-9]+$'; }
exceed=false
[ "$(number_of token_weights_bytes)" -gt "$(number_of cache_bytes)" ] && exceed=true
grep -q "\"weights_exceed_caches\": $exceed" <<<"$report" && grep -qE '"read_exceeds_caches": (true|false)' <<<"$report" ||
	{ echo "FAILED: nothing right about the caches"; failed=1; }
[ "$(grep -o '"sequences": [0-9]*, "prompt_tokens": 32, "new_tokens": 4' <<<"$report" | tr -dc '0-9 \n' | awk '{ print $1 }' | tr '\n' ' ')" = "1 2 " ] ||
	{ echo "FAILED: the rows are not those of 1 and 2 sequences"; failed=1; }
[ $failed = 0 ] || echo "$report"
text=$("$shardrun" "${words[@]}") || { echo "FAILED: status $?"; exit 1; }
for words in "loaded in" "reads" "int8" "of arithmetic" "of read bandwidth" "weights exceed caches: "; do
	grep -q "$words" <<<"$text" || { echo "FAILED: the text has no \"$words\""; failed=1; }
done
exit $failed
