#!/usr/bin/env bash
# usage: arm_test.sh ROOT BUILD          SHARDRUN and MODEL as for the tests in tests/mpi
# The program for 64-bit Arm: built here with a cross compiler and run by an emulator. Tests of base/ and runtime/ pass, and
# digests of logits are those that this processor gives, with each table of kernels that Arm has. Skipped, with the reason, where
# the compiler, the emulator or the libraries cannot be had.
root=$1 build=$2/arm
. "$root/tests/mpi/common.sh"
[ "$(uname -m)" != aarch64 ] || { echo "skipped: this is a 64-bit Arm, where every test is this one"; exit 77; }
place=$(bash "$root/tests/scripts/arm_tools.sh" "$root/build/cache" 2>"$work/err") || {
	status=$?
	[ $status != 77 ] || echo "skipped: $(cat "$work/err")"
	[ $status = 77 ] || cat "$work/err"
	exit $status
}
sysroot=$place/sysroot
libraries=$sysroot/usr/lib/aarch64-linux-gnu
export PATH=$place/tools/usr/bin:$PATH
emulator=$(command -v qemu-aarch64-static)
arm() { "$emulator" -L "$sysroot" "$@"; }

# --- build ---

# Tests of base/ and runtime/, and of some the cases, that are quick enough.
tests=(test_base test_kernels test_packed test_pack test_attention test_wtype test_math_exact test_no_memory test_schedule test_session
	test_model test_plan
	"test_same_bits packed_weights_give_the_same_bits" "test_golden_logits logits_are_those_of_transformers")
compile() {                                         # the compiler's own libraries are not the machine's
	env -u PKG_CONFIG_PATH LD_LIBRARY_PATH="$(echo "$place"/tools/usr/lib/*-linux-gnu | tr ' ' :)" PKG_CONFIG_SYSROOT_DIR="$sysroot" \
		PKG_CONFIG_LIBDIR="$libraries/pkgconfig:$sysroot/usr/share/pkgconfig" "$@" >"$work/said" 2>&1 ||
		{ failed "$*"; cat "$work/said"; finish; }
	! grep 'warning:' "$work/said" || failed "the compiler warns"
}
compile cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DSHARDRUN_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux \
	-DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_SYSROOT="$sysroot" \
	-DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER -DMPI_SKIP_COMPILER_WRAPPER=TRUE -DMPI_C_LIB_NAMES=mpi \
	-DMPI_C_HEADER_DIR="$libraries/openmpi/include" -DMPI_mpi_LIBRARY="$libraries/openmpi/lib/libmpi.so"
compile cmake --build "$build" --target shardrun "${tests[@]%% *}"

# --- the tests, and digests of logits that some of them print ---

for test in "${tests[@]}"; do
	# shellcheck disable=SC2086 # a program and its words
	arm "$build"/tests/$test >"$work/there" 2>&1 || { failed "$test: status $?"; cat "$work/there"; }
	echo "$test: $(awk '/asserts/ { print $2 " asserts, " $5 " failed" }' "$work/there")"
	grep -qE 'digest [0-9a-f]{16}' "$work/there" || continue
	# shellcheck disable=SC2086
	"$2"/tests/$test >"$work/here" 2>&1 || failed "$test on this processor: status $?"
	diff <(grep -oE '^.*digest [0-9a-f]{16}' "$work/here") <(grep -oE '^.*digest [0-9a-f]{16}' "$work/there") || failed "$test: other digests than this processor's"
	echo "$test: $(grep -cE "digest [0-9a-f]{16}" "$work/there") digests are this processor's"
done

# --- the whole program gives the digests of this processor's ---

digests() { grep -oE '"(tokens|logits_digest)": (\[[^]]*\]|"[^"]*")' "$1"; }
same_digest() {                                     # NAME ISAS WORDS...: of shardrun run
	local name=$1 isas=$2 isa
	shift 2
	"$SHARDRUN" run "$@" --quiet --json </dev/null >"$work/here.json" || { failed "$name: status $?"; return; }
	digests "$work/here.json" >"$work/here"
	[ "$(grep -c logits_digest "$work/here")" = 1 ] || failed "$name: no digest"
	for isa in $isas; do
		arm "$build/shardrun" run "$@" --quiet --json --set runtime.isa=$isa </dev/null >"$work/there.json" ||
			{ failed "$name, $isa: status $?"; continue; }
		grep -q "\"kernels\": \"$isa\"" "$work/there.json" || failed "$name: not the kernels $isa"
		digests "$work/there.json" | diff "$work/here" - || failed "$name, $isa: another digest than this processor's"
	done
	echo "$name: $(sed -n 's/^"logits_digest": //p' "$work/here") with $isas"
}
same_digest jargon-moe "c neon neondot" --model "$MODEL" --prompt recursion: --max-tokens 30
if smollm2=$(sh "$root/tests/download.sh" smollm2 "$root/build/cache" 2>"$work/err"); then
	same_digest "SmolLM2 Q4_1" "neon neondot" --model "$smollm2" --prompt "The capital of France is" --max-tokens 4
else
	echo "without SmolLM2: $(cat "$work/err")"
fi

# A processor without the dot product takes the other kernels, and refuses those by name.
old() { "$emulator" -cpu cortex-a53 -L "$sysroot" "$build/shardrun" run --model "$MODEL" --prompt recursion: --quiet --json "$@" </dev/null; }
old --max-tokens 2 >"$work/old.json" && grep -q '"kernels": "neon"' "$work/old.json" || { failed "cortex-a53"; cat "$work/old.json"; }
old --max-tokens 2 --set runtime.isa=neondot >"$work/said" 2>&1
[ $? = 3 ] && grep -q 'runtime.isa: this processor has no "neondot"' "$work/said" || { failed "cortex-a53, neondot"; cat "$work/said"; }
finish
