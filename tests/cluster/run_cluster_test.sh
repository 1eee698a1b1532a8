#!/usr/bin/env bash
# run_cluster_test.sh NODES CPUS SECONDS SCRIPT [WORDS...]
#
# Brings up a Slurm cluster of NODES nodes on this machine (cluster.sh), runs SCRIPT in reach of it for at most SECONDS,
# and takes it down again, whatever happens. The status is the script's; 77 with a reason when such a cluster cannot be had
# here. The script sees SLURM_CONF, CLUSTER (the path of cluster.sh, for cut, kill and start) and ROOT (of the tree), and may
# itself exit with 77.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
nodes=${1:?usage: $0 NODES CPUS SECONDS SCRIPT [WORDS...]} cpus=$2 seconds=$3
shift 3
export CLUSTER=$here/cluster.sh
ROOT=$(cd "$here/../.." && pwd)
export ROOT PATH=$PATH:/usr/sbin:/sbin

skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "a cluster of namespaces needs root"
for command in slurmctld slurmd srun sinfo munged unmunge ip nsenter setpriv pgrep flock gcc; do
	command -v $command >/dev/null 2>&1 || skip "$command is not installed"
done
unshare --net --uts --mount --pid --fork true 2>/dev/null || skip "this machine gives no namespaces"
# Every node has a /tmp of its own: what lies below the machine's /tmp is shared with them by name.
if [ -z "${SHARE:-}" ]; then
	case $ROOT in
	/tmp/*" "*) skip "a tree below /tmp with a blank in its path cannot be shown to the nodes";;
	/tmp/*) export SHARE=$ROOT;;
	esac
fi

exec 9>/run/lock/shardrun-cluster.lock || exit 1
flock -w 600 9 || { echo "another cluster has been up on this machine for 600 s"; exit 1; }
munge_before=$(pgrep -x munged)
take_down() {
	"$CLUSTER" down 9>&-
	# munge serves the whole machine: it goes only when it came with this cluster
	[ -z "$munge_before" ] || return
	pgrep -x munged | xargs -r kill
	for _ in $(seq 50); do
		pgrep -x munged >/dev/null || return
		sleep 0.1
	done
}
trap take_down EXIT
trap 'exit 143' TERM INT HUP
said=$("$CLUSTER" up "$nodes" "$cpus" 2>&1 9>&-) || {
	echo "$said"
	case $said in *"not permitted"*) skip "this machine lets no cluster start";; esac
	exit 1
}
eval "$("$CLUSTER" env)"
srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no pmix plugin"
# See docs/COLLECTIVES.md, "Starting under srun".
export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
timeout --kill-after=10 "$seconds" "$@" 9>&-
status=$?
[ $status = 124 ] && echo "$1: not finished after $seconds s"
exit $status
