#!/usr/bin/env bash
# usage: run_shardrun.sh SHARDRUN
# The whole program on four nodes of two cores: layouts answer with the bits of one rank, tp stays inside nodes, a stage
# border carries 4 bytes an item, ranks may come in any order, and what does not fit is refused in one sentence.
SHARDRUN=$1 MODEL=$ROOT/configs/models/jargon-moe WORK_BELOW=$(dirname "$1")
. "$ROOT/tests/mpi/common.sh"
export OMPI_MCA_mpi_yield_when_idle=1               # the nodes are this machine's: their cores are the same ones
make_reference

# usage: on_nodes NAME srun's WORDS... -- the program's WORDS...: leaves NAME.json, NAME.err and the status
on_nodes() {
	local name=$1 words=()
	shift
	while [ "$1" != -- ]; do words+=("$1"); shift; done
	shift
	timeout 60 srun "${words[@]}" "$SHARDRUN" "${run_words[@]}" "$@" <"$work/prompts" >"$work/$name.json" 2>"$work/$name.err"
	status=$?
}

answered() {                                        # NAME
	[ "$status" = 0 ] || { failed "$1: status $status"; cat "$work/$1.err"; return 1; }
	same_answers "$work/$1.json" "$1"
}

traffic() { traffic_of "$work/$1.json" "$2" "$3"; }

tp_stays_inside() {                                 # NAME
	local bytes within
	within=$(traffic "$1" tp bytes_between_nodes) bytes=$(traffic "$1" tp bytes)
	echo "$1: tp $bytes bytes, between nodes $within; pp $(traffic "$1" pp bytes); ep $(traffic "$1" ep bytes_between_nodes)"
	[ "$within" = 0 ] && [ "$bytes" -gt 0 ] || failed "$1: tp carries $within of $bytes bytes between nodes"
}

# Every token but the last of each answer, and but those that were found in another's pages, goes once over each border of two
# stages: 192 items of 4 bytes.
prompt_tokens=$(awk '/"ids": \[/ { on = ++seen <= 4; next } /\]/ { on = 0 } on { n++ } END { print n }' "$MODEL/expected.json")
borders_carry() {                                   # NAME BORDERS
	local shared want
	shared=$(sed -n 's/.*"shared_tokens": \([0-9]*\).*/\1/p' "$work/$1.json")
	want=$(($2 * 192 * 4 * (prompt_tokens + 4 * 9 - shared)))
	[ "$(traffic "$1" pp bytes)" = $want ] && [ "$(traffic "$1" pp bytes_between_nodes)" = $want ] ||
		failed "$1: stage borders carry $(traffic "$1" pp bytes) bytes, not $want"
}

# host and coordinates of each rank, in an order of its own
places() { grep -E '^ *[0-9]+ +n[1-4] ' "$work/$1.err" | awk '{ print $2, $3, $4, $5, $6, $7 }' | sort; }
ranks_of() { grep -E '^ *[0-9]+ +n[1-4] ' "$work/$1.err" | awk '{ printf "%s ", $2 }'; }

pairs=(--mpi=pmix -N4 --ntasks-per-node=2)

# --- layouts ---

on_nodes pipeline "${pairs[@]}" -- --tp 2 --pp 4
answered pipeline && tp_stays_inside pipeline && borders_carry pipeline 3
on_nodes experts "${pairs[@]}" -- --dp 4 --tp 2 --ep 8
answered experts && tp_stays_inside experts
[ "$(traffic experts ep bytes_between_nodes)" -gt 0 ] || failed "experts: ep carries nothing between nodes"
on_nodes both "${pairs[@]}" -- --dp 2 --tp 2 --pp 2 --ep 4
answered both && tp_stays_inside both
on_nodes replicas --mpi=pmix -N4 --ntasks-per-node=1 -- --dp 4 --ep 4
answered replicas
on_nodes uneven --mpi=pmix -N3 --ntasks-per-node=1 -- --pp 3
answered uneven && borders_carry uneven 2
on_nodes auto "${pairs[@]}" --
answered auto && tp_stays_inside auto

# --- ranks in any order ---

on_nodes cyclic "${pairs[@]}" -m cyclic -- --tp 2 --pp 4
answered cyclic && tp_stays_inside cyclic && borders_carry cyclic 3
printf '%s\n' n3 n1 n2 n1 n4 n3 n4 n2 >"$work/hosts"
SLURM_HOSTFILE=$work/hosts on_nodes shuffled --mpi=pmix -N4 -n8 -m arbitrary -- --tp 2 --pp 4
answered shuffled && tp_stays_inside shuffled && borders_carry shuffled 3
for name in cyclic shuffled; do
	echo "$name: ranks on $(ranks_of $name)"
	[ "$(ranks_of $name)" != "$(ranks_of pipeline)" ] || failed "$name: the ranks are in order"
	diff <(places pipeline) <(places $name) || failed "$name: other coordinates on the nodes"
done
[ "$(places pipeline | wc -l)" = 8 ] || failed "pipeline: no table of 8 ranks"

# --- what does not fit ---

refused() {                                         # NAME STATUS PATTERN
	[ "$status" = "$2" ] || failed "$1: status $status, not $2"
	[ "$(grep -c '^shardrun:' "$work/$1.err")" = 1 ] && grep -q "^shardrun: .*$3" "$work/$1.err" ||
		{ failed "$1: not one sentence with \"$3\""; cat "$work/$1.err"; }
}
on_nodes no_pmix -N2 --ntasks-per-node=2 -- --tp 2 --pp 2
refused no_pmix 3 "srun started 4 tasks but MPI sees 1 rank in each: start with srun --mpi=pmix"
on_nodes wide "${pairs[@]}" -- --tp 4 --pp 2
refused wide 3 "nearest layouts of 8 ranks that work are tp "
# Two ranks on one node, one on each of two more.
on_nodes lopsided --mpi=pmix -N3 -n4 -- --tp 2 --pp 2
refused lopsided 3 "tp 2 does not fit whole into a node with 1 rank"
on_nodes lopsided_stages --mpi=pmix -N3 -n4 -- --pp 4
answered lopsided_stages

# --- a batch job, with mpirun in it ---

cat >"$work/job" <<JOB
#!/bin/bash
exec mpirun "$SHARDRUN" ${run_words[*]} --tp 2 --pp 4 <"$work/prompts" >"$work/batch.json" 2>"$work/batch.err"
JOB
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
timeout 60 sbatch --wait -N4 --ntasks-per-node=2 -o "$work/batch.out" "$work/job" >/dev/null
status=$?
answered batch && tp_stays_inside batch && borders_carry batch 3
diff <(places pipeline) <(places batch) || failed "batch: other coordinates on the nodes"
finish
