#!/bin/sh
# usage: run.sh MPI_RUN SHARDRUN RECIPE RANKS
# Runs a recipe of configs/recipes with the prompt "recursion:"; the text must be the model's.
mpi_run=$1 shardrun=$2 recipe=$3 ranks=$4
cd "$(dirname "$0")/../.." || exit 1
text=$(echo "recursion:" | "$mpi_run" "$ranks" "$shardrun" run "configs/recipes/$recipe.yaml" --quiet) || exit 1
echo "$text"
case $text in
"recursion: n. See recursion. See also tail recursion."*) ;;
*) echo "FAILED: that is not what the model says"; exit 1 ;;
esac
