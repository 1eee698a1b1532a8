#!/usr/bin/env bash
# stdin.sh SHARDRUN MODEL
# srun copies stdin to every task, and a step dies when one ends with 20 MB of it unread: only rank 0 needs the prompts, but
# all four read to the end.
set -eu
work=$(mktemp -d "$(dirname "$1")/stdin-XXXXXX")   # where all nodes see it
trap 'rm -rf "$work"' EXIT
{ echo bug:; head -c 20000000 /dev/zero | tr '\0' '\n'; echo hack:; } >"$work/in"
printf 'bug:\nhack:\n' | "$1" run --model "$2" --quiet --max-tokens 5 >"$work/want"
srun --mpi=pmix -N4 --ntasks-per-node=1 "$1" run --model "$2" --quiet --max-tokens 5 <"$work/in" >"$work/got"
cmp "$work/want" "$work/got"
[ "$(wc -l <"$work/got")" = 2 ]
