#!/usr/bin/env bash
# What ./demo runs, as a newcomer sees it, on four ranks: the two continuations that transformers gives (expected.json of the
# bundled model), and around them, in this order, the machine, the plan, the speed and the bytes of the communicators.
set -u
build=$1 root=$2
. "$root/configs/mpi-environment.sh"
mpi_environment demo_test
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }

cd "$root" || exit 1
mpirun -n 4 --oversubscribe "$build/shardrun" run configs/recipes/demo.yaml --prompt recursion: --prompt bug: \
	>"$room/out" 2>"$room/err" </dev/null || fail "status $?"
for text in 'n. See recursion. See also tail recursion.' \
	'n. An unwanted and unintended property of a program or piece of hardware, esp. one that causes it to malfunction.'; do
	grep -qF "$text" configs/models/jargon-moe/expected.json || fail "expected.json does not have: $text"
	tr '\n' ' ' <"$room/out" | grep -qF "$text" || fail "the output does not have: $text"
done
last=0
for word in 'cores' 'layers' 'prefill .* tokens/s.* decode .* tokens/s' 'bytes'; do
	line=$(awk -v last=$last -v word="$word" 'NR > last && $0 ~ word { print NR; exit }' "$room/err")
	[ -n "$line" ] && last=$line || fail "stderr has no \"$word\" after line $last"
done
[ "$(tail -n +"$last" "$room/err" | grep -cE '^(tp|pp) .*[0-9]')" = 2 ] || fail "stderr has no bytes of tp and pp"
# no bar where nobody watches
! grep -q $'\r' "$room/out" "$room/err" || fail "a progress bar went into a pipe"
[ $failed = 0 ] || cat "$room/out" "$room/err"
exit $failed
