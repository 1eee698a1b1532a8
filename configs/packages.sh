# The one place that lists the Debian packages; ./demo and ./check source it. For bash.
#
# A row is "package probe". The probe says how the thing shows that it is there, from a package or from a module alike:
# command:NAME on PATH, header:NAME for the compiler, pc:MODULE for pkg-config. So on a machine whose modules provide
# everything no package is asked for.
packages_build='
cmake              command:cmake
ninja-build        command:ninja
gcc                command:cc
libc6-dev          header:stdlib.h
pkg-config         command:pkg-config
libopenmpi-dev     command:mpicc
openmpi-bin        command:mpirun
libhwloc-dev       pc:hwloc
libyaml-dev        pc:yaml-0.1
libjansson-dev     pc:jansson
libpcre2-dev       pc:libpcre2-8
libutf8proc-dev    pc:libutf8proc
libxxhash-dev      pc:libxxhash
'
packages_test_build='
libcunit1-dev      pc:cunit
'
# Without these some tests skip, and say so.
packages_test_run='
slurmctld          command:slurmctld
slurmd             command:slurmd
slurm-client       command:srun
munge              command:munged
iproute2           command:ip
unzip              command:unzip
python3            command:python3
python3-pip        command:pip3
hwloc              command:lstopo-no-graphics
procps             command:pgrep
util-linux         command:unshare
'

# pkg-config looks where CMake will: below the prefixes of CMAKE_PREFIX_PATH, too.
packages_pkg_config() {
	local prefix path=${PKG_CONFIG_PATH:-}
	local IFS=:
	for prefix in ${CMAKE_PREFIX_PATH:-}; do
		path=$prefix/lib/pkgconfig:$prefix/lib64/pkgconfig:$prefix/share/pkgconfig:$path
	done
	PKG_CONFIG_PATH=$path pkg-config "$@"
}

packages_probe() {                                  # command:NAME | header:NAME | pc:MODULE
	local what=${1#*:}
	case $1 in
	command:*) PATH=$PATH:/usr/sbin:/sbin command -v "$what" >/dev/null 2>&1;;
	header:*) echo "#include <$what>" | cc -E - >/dev/null 2>&1;;
	pc:*) packages_pkg_config --exists "$what" 2>/dev/null;;
	esac
}

packages_missing() {                                # ROWS: prints the packages whose probe fails
	local package probe
	while read -r package probe; do
		[ -z "$package" ] || packages_probe "$probe" || printf '%s\n' "$package"
	done <<<"$1"
}

# Sets `as_root` to the words in front of a command that needs root; fails when there is no way.
packages_become_root() {
	as_root=()
	[ "$(id -u)" = 0 ] && return 0
	command -v sudo >/dev/null 2>&1 || return 1
	as_root=(sudo)
	sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }
}

packages_apt() {                                    # apt-get's words; mirrors fail now and then, so three tries
	local try
	for try in 1 2 3; do
		"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 \
			"$@" </dev/null && return 0
		[ "$try" = 3 ] || sleep $((try * 5))
	done
	return 1
}

# NAME ROWS...: installs what is missing of the rows, or says what to do and fails. NAME starts each line.
packages_need() {
	local name=$1 rows missing
	shift
	rows=$(printf '%s\n' "$@")
	missing=$(packages_missing "$rows" | tr '\n' ' ')
	[ -n "$missing" ] || return 0
	if command -v apt-get >/dev/null 2>&1 && packages_become_root; then
		echo "$name: installing the Debian packages: $missing" >&2
		local log
		log=$(mktemp)
		# shellcheck disable=SC2086 # a list of words
		if packages_apt update >"$log" 2>&1 && packages_apt install -y --no-install-recommends $missing >>"$log" 2>&1; then
			rm -f "$log"
			missing=$(packages_missing "$rows" | tr '\n' ' ')
			[ -n "$missing" ] || return 0
			echo "$name: installed, but still not found: $missing" >&2
			return 1
		fi
		tail -n 20 "$log" >&2
		rm -f "$log"
		echo "$name: apt-get could not install: $missing" >&2
		return 1
	fi
	cat >&2 <<-TEXT
	$name: these Debian packages are missing, and this user cannot install them: $missing
	$name: either let an administrator run
	    apt-get install $missing
	$name: or take them from your site's modules or from a prefix of your own, and run $name again:
	    module avail; module load cmake openmpi hwloc
	    export CMAKE_PREFIX_PATH=/path/to/openmpi:/path/to/hwloc:/path/to/others
	TEXT
	return 1
}
