#!/bin/sh
# usage: run.sh RANKS PROGRAM ARGUMENT...
# mpirun as a test needs it, on any machine: also as root, without ssh, and with more ranks than cores. MPIEXEC names mpirun.
ranks=$1
shift
if [ "$(id -u)" = 0 ]; then
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
if ! command -v ssh >/dev/null && ! command -v rsh >/dev/null; then
	export OMPI_MCA_plm_rsh_agent=/bin/false
fi
# Open MPI keeps some memory to the end.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
# MPIEXEC_OVERSUBSCRIBE may be set, to nothing, for a test of just that.
exec "${MPIEXEC:-mpirun}" ${MPIEXEC_OVERSUBSCRIBE---oversubscribe} -n "$ranks" "$@"
