#!/bin/bash
# However the launcher maps and binds ranks, the same coordinates stand on the same cores, and the answers are the same bits.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The cores that this process may use, by their numbers.
cores=$(taskset -pc $$ | sed 's/.*: //' | tr , '\n' | while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done)
set -- $cores
[ $# -ge 2 ] || { echo "skipped: one core has one mapping"; exit 77; }
first=$1 second=$2

# The plan's table: rank, host, cores, coordinates, shares. places: without the ranks, in an order of its own.
table() { grep -E '^ *[0-9]+ +[^ ]+ +[0-9,-]+( +[0-9]+){4} ' "$1"; }
places() { table "$1" | sed 's/^ *[0-9]* *//' | sort; }
ranks_in_order() { table "$1" | awk '{ printf "%s:%s ", $1, $3 }'; }

# Runs RANKS with mpirun's WORDS up to "--", then with the program's words; leaves the table in NAME.
mapped() {                                          # NAME RANKS mpirun's WORDS... -- the program's WORDS...
	local name=$1 ranks=$2 launcher=()
	shift 2
	while [ "$1" != -- ]; do launcher+=("$1"); shift; done
	shift
	if ! "$here/run.sh" "$ranks" "${launcher[@]}" "$SHARDRUN" "${run_words[@]}" "$@" \
		<"$work/prompts" >"$work/report" 2>"$work/err"; then
		failed "$name: it ends badly"
		cat "$work/err"
		return
	fi
	same_answers "$work/report" "$name"
	places "$work/err" >"$work/$name"
	echo "$name: rank:cores $(ranks_in_order "$work/err")"
	[ "$(wc -l <"$work/$name")" = "$ranks" ] || failed "$name: no table of $ranks ranks"
}

same_places() {                                     # NAME OTHER
	diff "$work/$1" "$work/$2" || failed "$2: other coordinates on the cores than with $1"
}

make_reference

# One rank a core: in order, against it (a rankfile), and by slots, nodes and cores without binding.
# mpirun must not see more ranks than cores here, or it refuses to bind.
export MPIEXEC_OVERSUBSCRIBE=
printf 'rank 0=localhost slot=1\nrank 1=localhost slot=0\n' >"$work/rankfile"
mapped core 2 --map-by core --bind-to core -- --tp 2
mapped rankfile 2 --rankfile "$work/rankfile" -- --tp 2
same_places core rankfile
[ "$(awk '{ print $2 }' "$work/core" | sort -u | wc -l)" = 2 ] || failed "core: two ranks on one core"
for how in core slot node; do
	mapped "$how-unbound" 2 --map-by $how --bind-to none -- --tp 2
	same_places core "$how-unbound"
done
unset MPIEXEC_OVERSUBSCRIBE

# Four ranks on two cores, each on a core that a wrapper gives it: tp pairs share a core whatever the order.
cat >"$work/bound" <<'WRAPPER'
#!/bin/bash
# usage: bound CORE,CORE,... PROGRAM...: rank r runs on the r-th core
IFS=, read -ra cores <<<"$1"
shift
exec taskset -c "${cores[$OMPI_COMM_WORLD_RANK]}" "$@"
WRAPPER
chmod +x "$work/bound"
a=$first b=$second
n=0
for order in $a,$a,$b,$b $a,$b,$a,$b $b,$a,$a,$b $b,$b,$a,$a; do
	n=$((n + 1))
	mapped "order$n" 4 --bind-to none "$work/bound" "$order" -- --tp 2 --pp 2
	same_places order1 "order$n"
done
finish
