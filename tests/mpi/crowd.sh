#!/bin/bash
# Eight ranks on two cores take 400 steps in seconds: who waits gives way, whether or not mpirun knows that cores are
# short. (Spinning, the same takes minutes.)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
command -v taskset >/dev/null || { echo "skipped: taskset is not installed"; exit 77; }
cores=$(taskset -pc $$ | sed 's/.*: //' | tr , '\n' | while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done | head -n 2)
cores=$(echo $cores | tr ' ' ,)
words=(run --model "$MODEL" --quiet --json --max-tokens 400 --set generation.ignore_eos=true --prompt bug:)

crowd() {                                           # NAME mpirun's WORDS... -- the program's WORDS...
	local name=$1 launcher=() began took
	shift
	while [ "$1" != -- ]; do launcher+=("$1"); shift; done
	shift
	began=$(date +%s%N)
	timeout --kill-after=2 60 taskset -c "$cores" "$here/run.sh" 8 "${launcher[@]}" --bind-to none "$SHARDRUN" "${words[@]}" "$@" \
		>"$work/report" 2>"$work/err" </dev/null || { failed "$name: status $?"; cat "$work/err"; return; }
	took=$((($(date +%s%N) - began) / 1000000))
	echo "$name: $took ms, $(grep -o '"decode_tokens_per_s": [0-9]*' "$work/report")"
	answers_of "$work/report" | grep digest | diff "$work/one" - || failed "$name: another digest than one rank's"
}

"$SHARDRUN" "${words[@]}" >"$work/one.json" </dev/null || failed "one rank: status $?"
answers_of "$work/one.json" | grep digest >"$work/one"
crowd "tp 4 x pp 2" -- --tp 4 --pp 2
crowd "ep 8" -- --tp 2 --dp 4 --ep 8
export MPIEXEC_OVERSUBSCRIBE=                       # as where a host file promises more slots than there are cores
crowd "tp 4 x pp 2, mpirun does not know" --host localhost:8 -- --tp 4 --pp 2
finish
