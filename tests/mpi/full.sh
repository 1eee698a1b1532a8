#!/bin/sh
# usage: full.sh RUN_SH COLLECTIVES
# A /dev/shm with room for the probe file and no more: ranks go on over MPI, and one line says why. Needs mount namespaces; 77
# (skipped) where this user may not make them.
run=$1 collectives=$2
alone="unshare --map-root-user --mount"
$alone mount -t tmpfs tmpfs /dev/shm 2>/dev/null || { echo "skipped: no mount namespaces here"; exit 77; }

said=$(mktemp)
trap 'rm -f "$said"' EXIT
# Open MPI must not look for room there either.
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
$alone sh -c "mount -t tmpfs -o size=64k tmpfs /dev/shm && exec $run 3 $collectives 0,0,0 full" >"$said" 2>&1
status=$?
cat "$said"
[ $status = 0 ] || { echo "FAILED: status $status"; exit 1; }
warned() { grep -c "communicator $1: no shared memory, its sums go through MPI.*: no [0-9]* bytes left in /dev/shm" "$said"; }
[ "$(warned world)" = 2 ] || { echo "FAILED: not one warning for each of two calls"; exit 1; }
[ "$(warned half)" = 1 ] || { echo "FAILED: not one warning for the half of two ranks"; exit 1; }
