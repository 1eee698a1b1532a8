#!/bin/bash
# usage: kill.sh load|wait|run VICTIM
# SIGKILL for one rank of four, at work: the job ends within 10 s, with one sentence that names the rank.
#   load   while it reads weights; wait: while it waits for another that reads weights; run: while it generates
# SLOW_READ names the library that makes reading slow.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
place=$1 victim=$2

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# The process of a rank: a child of mpirun's, with the rank in its environment.
pid_of() {                                          # RANK MPIRUN
	local pid
	for pid in $(ps -o pid= --ppid "$2"); do
		grep -qzx "OMPI_COMM_WORLD_RANK=$1" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
	done
}

wait_for() {                                        # WHAT COMMAND...
	local what=$1
	shift
	for _ in $(seq 200); do
		"$@" && return
		sleep 0.1
	done
	failed "no $what within 20 s"
	cat "$work/err"
	kill "$job"
	finish
}

phase=load
# One prompt after the other: Open MPI 5's mpirun passes on whole lines only.
words=(run --model "$MODEL" --quiet --tp 2 --pp 2 --prompt bug: --prompt bug: --prompt bug: --set runtime.sequences=1
	--set generation.ignore_eos=true --max-tokens 1000)
case $place in
load) slow=$victim;;
wait) slow=$(((victim + 1) % 4));;
run) slow=none phase=run;;
esac
: >"$work/out"                                      # it is looked at before the job may have made it
export LD_PRELOAD=$SLOW_READ SLOW_RANK=$slow SLOW_MARK=$work/reading
"$here/run.sh" 4 "$SHARDRUN" "${words[@]}" >"$work/out" 2>"$work/err" </dev/null &
job=$!
unset LD_PRELOAD
generates() { [ "$(wc -c <"$work/out")" -gt 60 ]; }
if [ "$place" = run ]; then
	wait_for "text" generates
else
	wait_for "reading" test -e "$work/reading"
	sleep 0.5                                   # the others have read theirs, and wait
fi

pid=$(pid_of "$victim" "$job")
[ "$(echo $pid | wc -w)" = 1 ] || { failed "rank $victim has the processes: $pid"; kill "$job"; finish; }
began=$(now_ms)
kill -KILL "$pid"
wait "$job"
status=$?
took=$(($(now_ms) - began))
echo "ended after $took ms with status $status"
[ "$took" -lt 10000 ] || failed "the job took $took ms to end"
[ "$status" != 0 ] || failed "status 0"
said="^shardrun: rank $victim on host $(hostname) \(pid $pid\) was lost during $phase; the job ends$"
[ "$(grep -cE "$said" "$work/err")" = 1 ] && [ "$(grep -c '^shardrun:' "$work/err")" = 1 ] ||
	{ failed "not one sentence that names rank $victim"; cat "$work/err"; }
finish
