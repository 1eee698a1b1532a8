#!/bin/sh
# usage: yield.sh RUN_SH COLLECTIVES
# A host file may promise more slots than there are cores: mpirun then sees no reason to make waiting ranks yield. The
# program does, and says so, but leaves alone what the environment or a parameter file says.
run=$1 collectives=$2
ranks=$(($(nproc) + 1))
[ "$ranks" -le 16 ] || { echo "skipped: $ranks ranks are many"; exit 77; }
nodes=0$(printf ',0%.0s' $(seq 2 "$ranks"))
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
export HOME="$home"
unset OMPI_MCA_mpi_yield_when_idle

# usage: said COUNT WHAT
said() {
	out=$(MPIEXEC_OVERSUBSCRIBE= "$run" "$ranks" --host "localhost:$ranks" --bind-to none "$collectives" "$nodes" 2>&1) ||
		{ echo "FAILED: $2: $out"; exit 1; }
	[ "$(echo "$out" | grep -c "^$ranks ranks share $((ranks - 1)) cores here: OMPI_MCA_mpi_yield_when_idle=1")" = "$1" ] ||
		{ echo "FAILED: $2: not said $1 times in: $out"; exit 1; }
}

said 1 "nothing is set"
OMPI_MCA_mpi_yield_when_idle=1 said 0 "the environment says it"
mkdir "$home/.openmpi"
echo "# mpi_yield_when_idle = 1" >"$home/.openmpi/mca-params.conf"
said 1 "a comment says it"
echo " mpi_yield_when_idle = 1" >>"$home/.openmpi/mca-params.conf"
said 0 "a file says it"
echo ok
