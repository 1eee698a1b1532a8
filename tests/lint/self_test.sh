#!/bin/sh
# The lint itself: a good tree passes every script, and each kind of fault is found, by its file's name, by the script
# that looks for it.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0
: >"$tree/none"

good_tree() {
	rm -rf "$tree/t"
	mkdir -p "$tree/t/base" "$tree/t/topology" "$tree/t/parallel" "$tree/t/runtime" "$tree/t/launcher"
	cd "$tree/t" || exit 2
	cat >base/a.h <<-'TEXT'
	/* exit(1), printf("x") and stderr in a comment are no calls. */
	void a_run(void) __attribute__((format(printf, 1, 2)));
	TEXT
	cat >parallel/comm_mpi.c <<-'TEXT'
	#include "base/a.h"
	#include <mpi.h>
	// abort() here neither
	static const char *word = "call exit(1) /* or */ abort() on stderr";
	int comm_mpi_abort(int status) { return comm_mpi_abort(status) + x->exit(1); }
	TEXT
	cat >launcher/main.c <<-'TEXT'
	#include "parallel/comm.h"
	int main(void) { printf("fine here"); exit(0); }
	TEXT
	echo 'struct comm;' >parallel/comm.h
}

run() { sh "$here/$1.sh" "$tree/t" "$tree/none" >"$tree/out" 2>&1; }

passes() {                                          # SCRIPT what
	if ! run "$1"; then
		echo "FAILED: $1 refuses $2:"; cat "$tree/out"; failed=1
	fi
}

finds() {                                           # SCRIPT FILE TEXT: with FILE holding stdin
	good_tree
	cat >"$tree/t/$2"
	if run "$1" || ! grep -qF "$2" "$tree/out" || ! grep -qF -- "$3" "$tree/out"; then
		echo "FAILED: $1 does not find \"$3\" in $2; it says:"; cat "$tree/out"; failed=1
	fi
}

good_tree
for script in layers calls sizes text; do
	passes $script "the good tree"
done
finds layers base/b.c 'quotes are for' <<'TEXT'
#include "launcher/not_there.h"
TEXT
finds layers base/b.c 'base must not know parallel' <<'TEXT'
#include "parallel/comm.h"
TEXT
finds layers topology/b.c 'topology must not know parallel' <<'TEXT'
	#  include   "parallel/comm.h"
TEXT
finds layers runtime/b.c 'written from the root' <<'TEXT'
#include "comm.h"
TEXT
finds layers parallel/member.c 'mpi.h: only' <<'TEXT'
#include <mpi.h>
TEXT
finds layers runtime/b.h 'hwloc/linux.h: only' <<'TEXT'
#include <hwloc/linux.h>
TEXT
for call in 'exit(1)' 'abort ()' '_exit(2)' 'printf("x")' 'fprintf(stderr, "x")' 'fputs("x", stdout)' 'perror("x")' \
	'sprintf(b, "x")' 'p = malloc(3)'; do
	printf 'void f(void)\n{\n\t%s;\n}\n' "$call" | finds calls runtime/b.c 'b.c:3:'
done
finds calls base/b.h 'b.h:2:' <<'TEXT'
/* a comment that ends */
static inline void f(void) { abort(); } /* abort */
TEXT
awk 'BEGIN { for (i = 0; i < 801; i++) print "int x;" }' | finds sizes launcher/b.c '801 lines'
awk 'BEGIN { print "int long_one(int a,\n\t     int b)\n{"; for (i = 0; i < 101; i++) print "\ta++;"; print "}" }' |
	finds sizes runtime/b.c 'long_one has 101 lines'
awk 'BEGIN { printf "\t\tint x;"; for (i = 0; i < 129; i++) printf " "; print "" }' | finds sizes base/b.h 'line 1 is wider'
good_tree
awk 'BEGIN { print "int long_one(int a)\n{"; for (i = 0; i < 101; i++) print "\ta++;"; print "}" }' >runtime/b.c
echo "runtime/b.c long_one" >"$tree/none"
passes sizes "a function that is listed"
: >"$tree/none"
finds text base/b.c 'do it, or file it' <<'TEXT'
/* TODO: later */
TEXT
finds text README.md 'names base/gone.h' <<'TEXT'
See `base/a.h` and `comm.h`, then `base/gone.h`.
TEXT
finds text launcher/b.sh 'a folder of one machine' <<'TEXT'
cp "/home/someone/model" .
TEXT
rm -rf "$tree/t"
mkdir "$tree/t"
for script in layers calls sizes text; do
	if run $script; then
		echo "FAILED: $script passes an empty tree"; failed=1
	fi
done
[ $failed = 0 ] && echo "every fault is found"
exit $failed
