#!/bin/sh
# usage: nodes.sh RUN_SH COLLECTIVES
# Five ranks of which rank 1 has a /dev/shm of its own, and ranks 3 and 4 have one together: three nodes. Needs mount
# namespaces; 77 (skipped) where this user may not make them.
run=$1 collectives=$2
alone="unshare --map-root-user --mount"
$alone mount -t tmpfs tmpfs /dev/shm 2>/dev/null || { echo "skipped: no mount namespaces here"; exit 77; }

said=$(mktemp)
# Ranks 3 and 4 share a namespace: a process that holds it waits while they run, and they enter it.
$alone sh -c 'mount -t tmpfs tmpfs /dev/shm && echo ready && exec sleep 50' >"$said" &
holder=$!
trap 'kill $holder; rm -f "$said"' EXIT
for _ in $(seq 50); do
	grep -q ready "$said" && break
	sleep 0.1
done
nodes=0,1,0,2,2
# Open MPI must not try to share memory over the borders that this makes.
OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo "$run" 1 "$collectives" $nodes \
	: -n 1 $alone sh -c "mount -t tmpfs tmpfs /dev/shm && exec $collectives $nodes" \
	: -n 1 "$collectives" $nodes \
	: -n 2 nsenter --user --preserve-credentials --mount --target $holder "$collectives" $nodes
