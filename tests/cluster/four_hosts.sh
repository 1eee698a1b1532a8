#!/usr/bin/env bash
# Four nodes answer by four names, through the same plugin that carries MPI.
set -eu
got=$(srun --mpi=pmix --input=0 -N4 --ntasks-per-node=1 hostname | sort | tr '\n' ' ')
echo "hosts: $got"
[ "$got" = "n1 n2 n3 n4 " ]
