#!/bin/bash
# usage: lost.sh RUN_SH LOST PLACE
# Runs 4 ranks of LOST of which rank 2 is lost at PLACE, and wants the job to end within 10 s with one sentence that names
# it. PLACE none: nothing is lost and nothing is said; told: mpirun gets SIGTERM; orphans: mpirun gets SIGKILL.
run=$1 lost=$2 place=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "FAILED: $*"
	echo "--- stderr:"
	cat "$work/err"
	exit 1
}

start() { "$run" 4 "$lost" "$@" >"$work/out" 2>"$work/err" & job=$!; }

wait_ready() {
	for _ in $(seq 100); do
		grep -q ready "$work/out" && return
		sleep 0.1
	done
	fail "the ranks did not start"
}

# The time from a loss (or signal) to the end counts from before the start: starting takes well below a second or two.
began=$(date +%s%N)
within_10_s() {
	local took=$(( ($(date +%s%N) - began) / 1000000 ))
	echo "ended after $took ms with status $status"
	[ "$took" -lt 10000 ] || fail "took $took ms"
}

said() { grep -cE "$1" "$work/err"; }

case $place in
load|reduce|window|compute)
	declare -A phase=([load]="load" [reduce]="step 17" [window]="step 17" [compute]="a long step")
	start "$place" 2
	wait "$job"; status=$?
	within_10_s
	[ "$status" != 0 ] || fail "status 0"
	[ "$(said "^shardrun: rank 2 on host $(hostname) \(pid [0-9]+\) was lost during ${phase[$place]}; the job ends$")" = 1 ] ||
		fail "the sentence that names rank 2 is not there once"
	[ "$(said '^shardrun:')" = 1 ] || fail "more was said"
	;;
none)
	start none
	wait "$job"; status=$?
	within_10_s
	[ "$status" = 0 ] || fail "status $status"
	[ "$(said 'shardrun:')" = 0 ] || fail "something was said"
	;;
told)
	start wait
	wait_ready
	kill -TERM "$job"
	wait "$job"; status=$?
	within_10_s
	[ "$status" != 0 ] || fail "status 0"
	[ "$(said "^shardrun: rank [0-3] on host $(hostname) was told to end during a long wait$")" = 1 ] || fail "no sentence"
	[ "$(said 'was lost')" = 0 ] || fail "a rank was called lost"
	;;
orphans)
	export TMPDIR=$work            # what Open MPI leaves there goes with it
	start wait
	wait_ready
	ranks=$(ps -o pid= --ppid "$job")
	[ "$(echo $ranks | wc -w)" = 4 ] || fail "mpirun has these children: $ranks"
	segments=$(for pid in $ranks; do grep -o '/dev/shm/vader_segment[^ ]*' "/proc/$pid/maps"; done | sort -u)
	kill -KILL "$job"
	wait "$job"; status=$?
	for pid in $ranks; do
		for _ in $(seq 80); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.1
		done
		kill -0 "$pid" 2>/dev/null && fail "process $pid lives on"
	done
	rm -f $segments                # Open MPI leaves them when mpirun is killed
	within_10_s
	;;
esac
echo ok
