#!/usr/bin/env bash
# usage: lost_rank.sh SHARDRUN SLOW_READ
# On four nodes of two cores a rank is killed while it loads, and while it generates: the job ends within 10 s with one
# sentence that names the rank.
SHARDRUN=$1 SLOW_READ=$2 MODEL=$ROOT/configs/models/jargon-moe WORK_BELOW=$(dirname "$1")
. "$ROOT/tests/mpi/common.sh"
export OMPI_MCA_mpi_yield_when_idle=1

now_ms() { echo $(($(date +%s%N) / 1000000)); }

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

# The process of a rank, as the machine numbers it. Ranks are nobody's but this cluster's: its srun started them.
pid_of() {                                          # RANK
	local pid
	for pid in $(pgrep -x shardrun); do
		grep -qzx "PMIX_RANK=$1" "/proc/$pid/environ" && grep -qzxF "SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" && echo "$pid"
	done
}

start() {                                           # SLOW_RANK
	rm -f "$work/reading"
	LD_PRELOAD=$SLOW_READ SLOW_RANK=$1 SLOW_MARK=$work/reading srun --mpi=pmix --input=none -N4 --ntasks-per-node=2 \
		"$SHARDRUN" run --model "$MODEL" --quiet --tp 2 --pp 4 --prompt bug: --set generation.ignore_eos=true \
		--max-tokens 1000 >"$work/out" 2>"$work/err" &
	job=$!
}

generates() { [ "$(wc -c <"$work/out")" -gt 60 ]; }

ended() {                                           # NAME BEGAN_MS
	local took
	for _ in $(seq 300); do
		kill -0 "$job" 2>/dev/null || break
		sleep 0.1
	done
	took=$(($(now_ms) - $2))
	kill -0 "$job" 2>/dev/null && { kill "$job"; failed "$1: the job goes on"; }
	wait "$job"
	status=$?
	echo "$1: ended after $took ms with status $status"
	[ "$took" -lt 10000 ] || failed "$1: the job took $took ms to end"
	[ "$status" != 0 ] || failed "$1: status 0"
}

kill_rank() {                                       # RANK HOST PHASE
	local pid began
	pid=$(pid_of "$1")
	[ "$(echo $pid | wc -w)" = 1 ] || { failed "rank $1 has the processes: $pid"; kill "$job"; finish; }
	began=$(now_ms)
	kill -KILL "$pid"
	ended "rank $1 during $3" "$began"
	[ "$(grep -cE "^shardrun: rank $1 on host $2 \(pid [0-9]+\) was lost during $3; the job ends$" "$work/err")" = 1 ] &&
		[ "$(grep -c '^shardrun:' "$work/err")" = 1 ] || { failed "rank $1: not one sentence"; cat "$work/err"; }
}

start 5
wait_for reading test -e "$work/reading"
sleep 0.5
kill_rank 5 n3 load
start none
wait_for text generates
kill_rank 0 n1 run
start none
wait_for text generates
kill_rank 6 n4 run
finish
