#!/bin/bash
# usage: batch.sh KILLS
# A batch that is killed KILLS times at random moments, any rank of it, in changing layouts, and each time started again: its
# output is that of an undisturbed run of one process, byte for byte. Then the orders to end: USR1, TERM and --time-limit give
# status 75, and the same command goes on. Then what a second run of a finished batch does, and stdin and stdout.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
kills=$1
RANDOM=20261130
export SOURCE_DATE_EPOCH=1700000000
layouts=("4 --tp 2 --pp 2" "2 --dp 2" "3 --tp 3" "2 --pp 2" "4 --dp 2 --ep 4 --tp 2")

# Greedy and drawn, with several answers, and lines that are no good.
make_input() {                                      # LINES
	local i
	for i in $(seq "$1"); do
		case $((i % 7)) in
		0) echo "{\"custom_id\": \"n$i\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"bug: $i\", \"n\": 2, \"temperature\": 1, \"seed\": $i, \"max_tokens\": 30}}";;
		3) echo "{\"prompt\": \"patch: $i is a\", \"temperature\": 0.7, \"seed\": $i, \"max_tokens\": $((i % 50 + 1)), \"ignore_eos\": true}";;
		5) echo "{\"prompt\": \"line $i, not closed";;
		*) echo "{\"custom_id\": \"g$i\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"bug: number $i\", \"max_tokens\": $((i % 90 + 10)), \"ignore_eos\": true}}";;
		esac
	done
}

batch=(batch --model "$MODEL" --quiet --input "$work/in" --output "$work/out")
make_input 500 >"$work/in"
"$SHARDRUN" batch --model "$MODEL" --quiet --input "$work/in" --output "$work/want" || { failed "one process: status $?"; finish; }
[ "$(wc -l <"$work/want")" = 500 ] && [ "$(grep -c '"status_code":200' "$work/want")" -gt 400 ] ||
	{ failed "one process: not 500 results"; finish; }

pid_of() {                                          # RANK MPIRUN
	local pid
	for pid in $(ps -o pid= --ppid "$2"); do
		grep -qzx "OMPI_COMM_WORLD_RANK=$1" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
	done
}

same_output() {                                     # NAME
	cmp -s "$work/want" "$work/out" || { failed "$1: other results than an undisturbed run's"; diff "$work/want" "$work/out" | head -n 4; }
}

start() {                                           # N WORD...: of layouts
	local words
	words=(${layouts[$(($1 % ${#layouts[@]}))]})
	ranks=${words[0]}
	"$here/run.sh" "${words[0]}" "$SHARDRUN" "${batch[@]}" "${words[@]:1}" "${@:2}" >"$work/said" 2>"$work/err" </dev/null &
	job=$!
}

again() { rm -rf "$work/out" "$work/out.journal"; }

killed=0 finished=0 runs=0
while [ "$killed" -lt "$kills" ]; do
	start "$runs"
	runs=$((runs + 1))
	sleep "$((RANDOM % 5)).$((RANDOM % 10))"
	pid=$(pid_of $((RANDOM % ranks)) "$job")
	if [ -n "$pid" ] && kill -KILL $pid 2>"$work/nobody"; then
		wait "$job" && [ ! -e "$work/out" ] && failed "run $runs: a rank was killed, and all seems well"
		killed=$((killed + 1))
	else
		wait "$job" || { failed "run $runs, not killed: status $?"; cat "$work/err"; finish; }
	fi
	[ -e "$work/out" ] || continue
	finished=$((finished + 1))
	same_output "run $runs"
	again
done
"$SHARDRUN" "${batch[@]}" || failed "the last run: status $?"
same_output "the last run"
echo "$runs runs, $killed killed, $finished batches finished on the way"

# Told to end, and by its own limit.
for how in USR1 TERM limit; do
	again
	if [ $how = limit ]; then
		"$SHARDRUN" "${batch[@]}" --time-limit 0:0:2 2>"$work/err"
	else
		"$SHARDRUN" "${batch[@]}" --grace 1 2>"$work/err" &
		job=$!
		sleep 1
		kill -$how $job
		wait $job
	fi
	status=$?
	[ $status = 75 ] || [ -e "$work/out" ] || { failed "$how: status $status"; cat "$work/err"; }
	"$SHARDRUN" "${batch[@]}" || failed "after $how: status $?"
	same_output "after $how"
done
for how in "USR1 to mpirun" "TERM to the ranks"; do   # as srun sends it; mpirun would kill them a second later
	again
	start 0 --grace 1
	sleep 2
	if [ "$how" = "USR1 to mpirun" ]; then
		kill -USR1 "$job"
	else
		pids=$(for rank in 0 1 2 3; do pid_of $rank "$job"; done)
		[ -z "$pids" ] || kill -TERM $pids          # it may have ended by itself
	fi
	wait "$job"
	status=$?
	[ $status = 75 ] || [ -e "$work/out" ] || { failed "$how: status $status"; cat "$work/err"; }
	start 1
	wait "$job" || failed "after $how: status $?"
	same_output "after $how"
done

"$SHARDRUN" "${batch[@]}" || failed "a finished batch: status $?"
"$SHARDRUN" "${batch[@]}" --strict 2>"$work/err"
[ $? = 1 ] && grep -q "have an error as their result" "$work/err" || { failed "--strict"; cat "$work/err"; }
echo '{"prompt": "one more"}' >>"$work/in"
"$SHARDRUN" "${batch[@]}" 2>"$work/err" && failed "another input: status 0"
same_output "another input"
head -n 500 "$work/in" | "$here/run.sh" 2 "$SHARDRUN" batch --model "$MODEL" --quiet --tp 2 --input - --output - --journal "$work/j" \
	>"$work/out" || failed "stdin and stdout: status $?"
same_output "stdin and stdout"
finish
