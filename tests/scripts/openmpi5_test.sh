#!/usr/bin/env bash
# usage: openmpi5_test.sh ROOT          SHARDRUN, MODEL and SLOW_READ as for the tests in tests/mpi
# Another Open MPI than the system's: 5, in a prefix of its own, fetched from PyPI. A build against it, made and installed as
# README.md says, loads that prefix's library, gives the bits of this build's one rank, names a lost rank, and refuses to be N
# worlds of one rank under an srun without PMIx. Skipped, with the reason, where the prefix cannot be had.
root=$1
. "$root/tests/mpi/common.sh"
touch "$work/began"
prefix=$(sh "$root/tests/download.sh" openmpi5 "$root/build/cache" 2>"$work/err") || {
	status=$?
	[ $status != 77 ] || echo "skipped: $(cat "$work/err")"
	[ $status = 77 ] || cat "$work/err"
	exit $status
}
# Who runs this test, under Slurm say, must not decide which MPI is found, or who seems to have started a rank.
for name in $(compgen -e | grep -E '^(OMPI_COMM|OPAL|PMIX?|PRTE|SLURM)_') MPI_HOME LD_LIBRARY_PATH OMPI_MCA_mpi_yield_when_idle; do
	unset "$name"
done
export MPIEXEC=$prefix/bin/mpirun

# --- every way to name the prefix finds it ---

configure() {                                       # NAME WORDS...: the words go in front of or behind cmake's
	local name=$1
	shift
	"$@" -G Ninja -S "$root" -B "$work/$name" -DSHARDRUN_TESTS=OFF -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_INSTALL_PREFIX="$work/installed" >"$work/said" 2>&1 || { failed "$name: cmake"; cat "$work/said"; finish; }
	[ "$(sed -n 's/^MPI_mpi_LIBRARY:[A-Z]*=//p' "$work/$name/CMakeCache.txt")" = "$prefix/lib/libmpi.so" ] ||
		{ failed "$name: another MPI was found"; grep ^MPI_ "$work/$name/CMakeCache.txt"; }
}
configure path env PATH="$prefix/bin:$PATH" cmake                   # what a module does
configure home env MPI_HOME="$prefix" cmake
configure variable env CMAKE_PREFIX_PATH="$prefix:${CMAKE_PREFIX_PATH:-}" cmake
configure option cmake -DCMAKE_PREFIX_PATH="$prefix"

# --- build, install, and which library is loaded ---

if ! cmake --build "$work/option" --target shardrun >"$work/said" 2>&1 || ! cmake --install "$work/option" >>"$work/said" 2>&1; then
	failed "build or install"
	cat "$work/said"
	finish
fi
! grep -i 'warning' "$work/said" || failed "the compiler warns"
one_rank=$SHARDRUN
export SHARDRUN=$work/installed/bin/shardrun
loaded=$(ldd "$SHARDRUN" | sed -n 's/^\tlibmpi\.so\.40 => \(.*\) (.*/\1/p')
echo "libmpi.so.40: $loaded"
[ "$loaded" = "$prefix/lib/libmpi.so.40" ] || { failed "libmpi.so.40 is $loaded"; ldd "$SHARDRUN"; finish; }

# --- the bits of one rank ---

words=(run --model "$MODEL" --prompt recursion: --max-tokens 60)
"$one_rank" "${words[@]}" --quiet --json </dev/null >"$work/one.json" || failed "one rank: status $?"
answers_of "$work/one.json" >"$work/one"
[ "$(grep -c logits_digest "$work/one")" = 1 ] || failed "one rank: no digest"
timeout 60 "$root/tests/mpi/run.sh" 4 "$SHARDRUN" "${words[@]}" --json --tp 2 --pp 2 </dev/null >"$work/four.json" 2>"$work/err" ||
	{ failed "four ranks: status $?"; cat "$work/err"; }
echo "four ranks: $(answers_of "$work/four.json" | tr '\n' ' ')"
same_answers "$work/four.json" "four ranks"
grep -qF '"text": " n. See recursion. See also tail recursion.' "$work/four.json" || failed "text: $(cat "$work/four.json")"
grep -qF '"layout": {"ranks": 4, "tp": 2, "pp": 2,' "$work/four.json" || failed "layout: $(cat "$work/four.json")"

# Open MPI 5 gives each of two ranks a core, and does not say so: they have enough. Four on fewer cores have not.
cores=$(nproc)
if [ "$cores" -ge 2 ]; then
	MPIEXEC_OVERSUBSCRIBE= timeout 60 "$root/tests/mpi/run.sh" 2 "$SHARDRUN" "${words[@]}" </dev/null >"$work/out" 2>"$work/two" ||
		failed "two ranks: status $?"
	! grep 'ranks share' "$work/two" || failed "two ranks on $cores cores are said to be too many"
fi
want=$((cores < 4))
[ "$(grep -c "^4 ranks share $cores cores here" "$work/err")" = $want ] || { failed "four ranks on $cores cores"; cat "$work/err"; }

# --- a rank is killed ---

for victim in 0 3; do
	timeout 60 bash "$root/tests/mpi/kill.sh" run $victim >"$work/said" 2>&1 || failed "kill"
	echo "rank $victim killed: $(cat "$work/said")"
done

# --- srun without PMIx: what it sets, less and less of it ---

alone() {                                           # LINES NAME=VALUE...: refused; one sentence, and LINES on stderr in all
	local lines=$1 status
	shift
	timeout 30 env SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 "$@" "$SHARDRUN" "${words[@]}" --quiet \
		</dev/null >"$work/out" 2>"$work/err"
	status=$?
	[ $status = 3 ] || failed "srun, $*: status $status"
	[ "$(grep -c '^shardrun:' "$work/err")" = 1 ] && [ "$(wc -l <"$work/err")" = "$lines" ] &&
		grep -q '^shardrun: srun started 2 tasks but MPI sees 1 rank in each: start with srun --mpi=pmix' "$work/err" ||
		{ failed "srun, $*: not one sentence"; cat "$work/err"; }
	[ ! -s "$work/out" ] || failed "srun, $*: text on stdout"
}
alone 1 SLURM_STEP_NUM_TASKS=2
alone 1
# --mpi=pmi2, which Open MPI 5 does not speak: only MPI_Init can tell, and says so in two lines of its own.
alone 3 SLURM_STEP_NUM_TASKS=2 PMI_RANK=0 PMI_SIZE=2 PMI_FD=9 OPAL_PREFIX="$prefix"
# Ranks that were killed or refused leave their shared memory; no other job runs beside this test.
find /dev/shm -maxdepth 1 -name 'sm_segment.*' -user "$(id -un)" -newer "$work/began" -delete
finish
