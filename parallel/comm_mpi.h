/* Between comm_mpi.c (the filling) and comm_mpi_start.c (starting and ending); nobody else includes this. */
#ifndef SHARDRUN_PARALLEL_COMM_MPI_H
#define SHARDRUN_PARALLEL_COMM_MPI_H

#include "parallel/comm.h"

#include <mpi.h>

/* Takes the communicator over on success, also when it is the world's. COLLECTIVE only in that all ranks do it. */
enum err comm_mpi_wrap(MPI_Comm mpi, const char *name, struct comm **out);
MPI_Comm comm_mpi_handle(const struct comm *c);
/* ERR_OK for MPI_SUCCESS; else the error that `code` stands for, with MPI's own words. */
enum err comm_mpi_check(int code, const char *comm_name, const char *call);
/* 1 when this node has more ranks than cores for them, as seen by comm_mpi_start. */
int comm_mpi_cores_are_short(void);

#endif
