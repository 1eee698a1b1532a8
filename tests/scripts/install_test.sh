#!/usr/bin/env bash
# cmake --install into a prefix with a blank in its name: what is there, that it names that prefix, and that it runs.
set -eu
build=$1 version=$2
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
prefix="$room/a prefix"
cmake --install "$build" --prefix "$prefix" >"$room/said" || { cat "$room/said"; exit 1; }
for file in bin/shardrun share/man/man1/shardrun.1 share/shardrun/recipes/demo.yaml share/shardrun/reference.yaml \
	share/shardrun/models/jargon-moe/model.safetensors share/doc/shardrun/README.md "share/modulefiles/shardrun/$version"; do
	[ -s "$prefix/$file" ] || { echo "FAILED: no $file below the prefix"; exit 1; }
done
grep -qF "set root \"$prefix\"" "$prefix/share/modulefiles/shardrun/$version"
! grep -n '@[A-Z_]*@' "$prefix/share/modulefiles/shardrun/$version" "$prefix/share/man/man1/shardrun.1"
said=$(cd / && "$prefix/bin/shardrun" --version)
echo "--version: $said"
case $said in *"$version"*) ;; *) exit 1;; esac
# the installed recipe finds the installed model
cd / && "$prefix/bin/shardrun" plan "$prefix/share/shardrun/recipes/demo.yaml" --set parallel.dp=1 --cluster "pack:1 core:4 pu:1"
