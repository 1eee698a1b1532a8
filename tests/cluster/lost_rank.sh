#!/usr/bin/env bash
# usage: lost_rank.sh SHARDRUN SLOW_READ
# On four nodes of two cores a rank is killed while it loads, and while it generates; then a node loses its power: the job ends
# within 10 s with one sentence that names what was lost.
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
	kill "$job" 2>/dev/null
	finish
}

# The process of a rank, as the machine numbers it. Ranks are nobody's but this cluster's: its srun started them.
pid_of() {                                          # RANK
	local pid
	for pid in $(pgrep -x shardrun); do
		grep -qzx "PMIX_RANK=$1" "/proc/$pid/environ" && grep -qzxF "SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" && echo "$pid"
	done
}

words=(run --model "$MODEL" --quiet --tp 2 --pp 4 --prompt bug: --set generation.ignore_eos=true --max-tokens 1000)
start() {                                           # SLOW_RANK
	rm -f "$work/reading"
	LD_PRELOAD=$SLOW_READ SLOW_RANK=$1 SLOW_MARK=$work/reading srun --mpi=pmix --input=none -N4 --ntasks-per-node=2 \
		"$SHARDRUN" "${words[@]}" >"$work/out" 2>"$work/err" &
	job=$!
}

generates() { [ "$(wc -c <"$work/out")" -gt 60 ]; }

# One sentence names what was lost; nodes may beside it only say that they were told to end.
one_sentence() {                                    # NAME PATTERN
	[ "$(grep -cE "^shardrun: $2; the job ends$" "$work/err")" = 1 ] &&
		[ "$(grep '^shardrun:' "$work/err" | grep -vc 'was told to end')" = 1 ] ||
		{ failed "$1: not one sentence that names it"; cat "$work/err"; }
}

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
	one_sentence "rank $1" "rank $1 on host $2 \(pid [0-9]+\) was lost during $3"
}

# Those that run; a node without power leaves dead ones that nobody will collect.
ranks_left() {
	local pid
	for pid in $(pgrep -x shardrun); do
		grep -qzxF "SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" 2>/dev/null && return 0
	done
	return 1
}

all_ranks_end() {                                   # NAME BEGAN_MS
	local took
	for _ in $(seq 300); do
		ranks_left || break
		sleep 0.1
	done
	took=$(($(now_ms) - $2))
	echo "$1: the last rank ended after $took ms"
	[ "$took" -lt 10000 ] || failed "$1: ranks went on for $took ms"
}

# srun waits for the node that is gone, for as long as the site's KillWait says; the ranks do not.
kill_node() {                                       # NODE RANKS
	local began
	began=$(now_ms)
	"$CLUSTER" kill "$1" 2>/dev/null
	all_ranks_end "node $1" "$began"
	one_sentence "node $1" "host $1 \(ranks $2\) sent no sign of life for 5 s during run and is taken for lost"
	wait "$job"
	status=$?
	echo "srun ended after $(($(now_ms) - began)) ms with status $status"
	[ "$status" != 0 ] || failed "node $1: status 0"
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

start none
wait_for text generates
kill_node n3 4-5
"$CLUSTER" start n3
all_idle() { [ "$(sinfo -h -t idle -o %D)" = 4 ]; }
wait_for "four nodes" all_idle

# The node that mpirun runs on: nobody is left to end the others, or to print a sentence, but they end each other.
cat >"$work/job" <<JOB
#!/bin/bash
exec mpirun "$SHARDRUN" ${words[*]} >"$work/out" 2>"$work/err" </dev/null
JOB
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
: >"$work/out"
sbatch --no-requeue -N4 --ntasks-per-node=2 -o "$work/batch.out" "$work/job" >/dev/null
wait_for text generates
began=$(now_ms)
"$CLUSTER" kill n1 2>/dev/null
all_ranks_end "node n1, with mpirun" "$began"
finish
