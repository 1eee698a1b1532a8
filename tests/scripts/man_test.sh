#!/usr/bin/env bash
# Every option that --help names for a command of the man page is in the man page.
set -u
shardrun=$1 page=$2
failed=0
page=$(tr -d '\\' <"$page")
options=$(for command in run batch bench plan topo inspect; do "$shardrun" $command --help; done | grep -oE '(^|[ ,])--[a-z][a-z-]*' | tr -d ' ,' | sort -u)
for option in $options; do
	grep -qE -- "(^|[^a-z-])$option([^a-z-]|\$)" <<<"$page" || { echo "FAILED: $option is not in the man page"; failed=1; }
done
[ "$(wc -w <<<"$options")" -ge 10 ] || { echo "FAILED: --help names $(wc -w <<<"$options") options only"; failed=1; }
exit $failed
