# What Open MPI needs on a bare machine or in a container, for bash. Sets only what nobody has set, and says what.
mpi_environment() {                                 # NAME: starts each line
	local said=
	mpi_default() { [ -n "${!1+set}" ] || { export "$1=$2"; said="$said $1=$2"; }; }
	if [ "$(id -u)" = 0 ]; then
		mpi_default OMPI_ALLOW_RUN_AS_ROOT 1
		mpi_default OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1
	fi
	# mpirun looks for a remote shell even when all ranks are here
	command -v ssh >/dev/null 2>&1 || command -v rsh >/dev/null 2>&1 || mpi_default OMPI_MCA_plm_rsh_agent /bin/false
	# containers often forbid one process to read another's memory
	if [ -e /.dockerenv ] || [ -e /run/.containerenv ]; then
		mpi_default OMPI_MCA_btl_vader_single_copy_mechanism none
	fi
	[ -z "$said" ] || echo "$1: set in the environment of mpirun:$said" >&2
}
