#!/usr/bin/env bash
#
# Makes the images of the servers that the integration tests start. An image
# that the Docker engine has is left alone; one that it lacks is pulled, and,
# where no registry answers, made from Debian's packages with debootstrap. That
# takes root and a machine with apt. Nothing is done twice: run it at any time.
#
# An image is replaced by naming another one in the environment, as in
# WEIR_IMAGE_REDIS_8_0=registry.example/redis:8.0. WEIR_DEBIAN_MIRROR replaces
# the mirror, which is otherwise the one in this machine's apt sources.
#
# A suite that is not released moves on, and some servers are in no suite. So
# those images are optional: if one cannot be had, this script says so and
# succeeds, and the tests skip the server by its name. No other version takes
# its place, because reports and tests are named after the version.
#
# It needs bash 4.4 and GNU coreutils.

# shellcheck disable=SC2317 # Functions are reached through trap and start.

set -euo pipefail
set -m # Each background job is a process group, which cleanup ends as a whole.

readonly pull_seconds=120 debootstrap_seconds=600

# An entry is: image, Debian suite that has the server or -, server, its version,
# and whether the image is optional.
readonly images=(
	"${WEIR_IMAGE_REDIS_6_0:-redis:6.0} bullseye redis 6.0"
	"${WEIR_IMAGE_REDIS_7_0:-redis:7.0} bookworm redis 7.0"
	"${WEIR_IMAGE_REDIS_8_0:-redis:8.0} trixie redis 8.0"
	"${WEIR_IMAGE_VALKEY_8_1:-valkey/valkey:8.1} trixie valkey 8.1"
	"${WEIR_IMAGE_REDIS_8_6:-redis:8.6} experimental redis 8.6 optional"
	"${WEIR_IMAGE_REDIS_8_10:-redis:8.10} - redis 8.10 optional"
	"${WEIR_IMAGE_REDICT_7_3:-redict:7.3} forky redict 7.3 optional"
	"${WEIR_IMAGE_VALKEY_9_1:-valkey/valkey:9.1} forky valkey 9.1 optional"
	"${WEIR_IMAGE_VALKEY_9_2:-valkey/valkey:9.2} - valkey 9.2 optional"
	"${WEIR_IMAGE_POSTGRES_15:-postgres:15} bookworm postgres 15"
	"${WEIR_IMAGE_POSTGRES_17:-postgres:17} trixie postgres 17"
	"${WEIR_IMAGE_POSTGRES_18:-postgres:18} forky postgres 18"
	"${WEIR_IMAGE_POSTGRES_19:-postgres:19} experimental postgres 19 optional"
	"${WEIR_IMAGE_PGBOUNCER_1_26:-pgbouncer:1.26} forky pgbouncer 1.26 optional"
)

work=$(mktemp -d "${TMPDIR:-/tmp}/weir-images.XXXXXX")
readonly work
jobs=()

# cleanup leaves no process and no tree behind.
cleanup() {
	local status=$? job
	trap - EXIT
	for job in "${jobs[@]}"; do
		kill -KILL -- "-$job" 2>/dev/null || true
	done
	wait 2>/dev/null
	rm -rf --one-file-system "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() {
	printf 'images: %s\n' "$*"
}

die() {
	say "$*" >&2
	exit 1
}

# version IMAGE SERVER prints the version of the server in the image.
version() {
	local program=$2-server
	[[ $2 != postgres && $2 != pgbouncer ]] || program=$2
	timeout 60 docker run --rm --network none --entrypoint "$program" "$1" --version |
		sed -nE 's/.*( v=|\(PostgreSQL\) |PgBouncer )([0-9][0-9a-z.]*).*/\2/p'
}

# check IMAGE SERVER VERSION prints the server's whole version when it is a
# release of VERSION, or a candidate as in 19rc1, and fails when it is not.
check() {
	local got
	got=$(version "$1" "$2") || return
	case $got in
	"$3"[.a-z]*) echo "$got" ;;
	*)
		echo "$2-server is ${got:-of an unknown version}, not $3" >&2
		return 1
		;;
	esac
}

# packages SUITE KIND prints the packages that have the servers of the missing images, all
# of them or the required ones, with commas. If SUITE is empty, they are those of every suite.
packages() {
	printf '%s\n' "${missing[@]}" | awk -v suite="$1" -v kind="$2" '
		(suite == "" || $2 == suite) && (kind == "all" || $5 != "optional") {
			print $3 == "postgres" ? "postgresql-" $4 : $3 == "pgbouncer" ? $3 : $3 "-server"
		}' | paste -sd,
}

# give_up SUITE TEXT… ends the work on the missing images of SUITE, or of every suite if it is
# empty. It fails if one of them is not optional.
give_up() {
	say "${*:2}" >&2
	[[ -z $(packages "$1" required) ]]
	exit
}

# pull IMAGE SERVER VERSION
pull() {
	local got
	timeout "$pull_seconds" docker pull --quiet "$1" >/dev/null || return
	got=$(check "$@") || return
	say "$1: pulled ($2 $got)"
}

# debian_mirror prints the address of the first Debian archive that apt uses.
# Asking apt saves parsing its two formats of sources; it knows the label of an
# archive only after an update.
debian_mirror() {
	# shellcheck disable=SC2016 # The format is apt's to expand.
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' |
		awk '/^(https?|file):/ && !n++'
}

# find_keyring prints the path of Debian's keys, which end in .pgp since Debian 13.
find_keyring() {
	find /usr/share/keyrings -name 'debian-archive-keyring.[gp][gp][gp]' | head -n 1
}

# prepare sees to debootstrap, the keyring and the mirror.
prepare() {
	local apt=(apt-get -qq -o DPkg::Lock::Timeout=120)

	[[ $(id -u) == 0 ]] || give_up '' "no registry gave them, and making them from Debian's packages takes root"
	command -v apt-get >/dev/null || give_up '' "no registry gave them, and this machine has no apt to make them with"

	mirror=${WEIR_DEBIAN_MIRROR:-$(debian_mirror)}
	if [[ -z $mirror || -z $(find_keyring) ]] || ! command -v debootstrap >/dev/null; then
		if ! {
			timeout 300 "${apt[@]}" update &&
				DEBIAN_FRONTEND=noninteractive timeout 300 "${apt[@]}" install --no-install-recommends \
					debootstrap debian-archive-keyring
		} >"$work/apt.log" 2>&1 </dev/null; then
			give_up '' "apt-get gives no debootstrap: $(tail -n 3 "$work/apt.log")"
		fi
		mirror=${mirror:-$(debian_mirror)}
	fi
	[[ -n $mirror ]] || give_up '' "this machine's apt sources name no Debian archive: set WEIR_DEBIAN_MIRROR"
	keyring=$(find_keyring)
}

# prepare_postgres TREE puts the server's programs on the path, and makes its user,
# as the packages would when they are configured: the server does not run as root.
prepare_postgres() {
	local program
	for program in "$1"/usr/lib/postgresql/*/bin/*; do
		ln -sf "${program#"$1"}" "$1/usr/bin/${program##*/}"
	done
	printf '%s\n' 'root:x:0:0::/root:/bin/sh' 'postgres:x:70:70::/var/lib/postgresql:/bin/sh' >"$1/etc/passwd"
	mkdir -p "$1/var/lib/postgresql"
	chown 70:70 "$1/var/lib/postgresql"
}

# with_cluster IMAGE prints the name of the image with an empty database cluster, so
# that not every container has to make one.
with_cluster() {
	local container image
	container=$(docker create --network none --user postgres "$1" \
		initdb --no-sync --auth trust --locale C --encoding UTF8 --pgdata /var/lib/postgresql/weir)
	docker start --attach "$container" >"$work/initdb.log" 2>&1 || { tail -n 3 "$work/initdb.log" >&2 && return 1; }
	image=$(docker commit --change 'USER root' "$container") # older engines keep the container's user
	docker rm "$container" >/dev/null
	docker rmi "$1" >/dev/null 2>&1 || true
	echo "$image"
}

# bootstrap SUITE TREE PACKAGES
bootstrap() {
	local script=/usr/share/debootstrap/scripts/$1 extra=()
	# A suite younger than debootstrap differs in nothing from sid.
	[[ -e $script ]] || script=${script%/*}/sid
	# What experimental lacks comes from sid.
	[[ $1 != experimental ]] || extra=(--extra-suites=sid)
	rm -rf --one-file-system "$2"
	# --foreign stops before the packages are configured: a server needs its
	# files only, and configuring takes a third of the time.
	timeout --foreground "$debootstrap_seconds" debootstrap --foreign --variant=minbase "${extra[@]}" \
		--include="$3" --keyring="$keyring" "$1" "$2" "$mirror" "$script" >"$work/$1.log" 2>&1 ||
		{ tail -n 5 "$work/$1.log" >&2 && return 1; }
}

# make_from SUITE makes the missing images whose server is in that suite. They
# share one tree: what is asked of an image is its server, not to be small.
make_from() {
	local suite=$1 tree=$work/$1 entry image from server want optional package servers id got made=0

	servers=$(packages "$suite" all)
	if ! bootstrap "$suite" "$tree" "$servers"; then
		# Perhaps it no longer has a package of an optional image.
		say "Debian $suite does not give $servers" >&2
		servers=$(packages "$suite" required)
		[[ -n $servers ]] || return 0
		bootstrap "$suite" "$tree" "$servers" || die "debootstrap $suite failed"
	fi
	for package in $(<"$tree/debootstrap/base"); do
		dpkg-deb --fsys-tarfile "$tree/var/cache/apt/archives/$package"_*.deb |
			tar --extract --keep-directory-symlink --directory="$tree"
	done
	[[ $servers != *postgresql-* ]] || prepare_postgres "$tree"

	id=$(
		tar --create --directory="$tree" \
			--exclude='./debootstrap' --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' --exclude='./run/*' \
			--exclude='./var/cache/*' --exclude='./var/lib/apt/*' --exclude='./var/log/*' \
			--exclude='./usr/share/doc' --exclude='./usr/share/man' --exclude='./usr/share/info' \
			--exclude='./usr/share/i18n' --exclude='./usr/share/locale' --exclude='./usr/lib/locale' \
			--exclude='libLLVM*' --exclude='./usr/lib/llvm-*' --exclude='llvmjit*' --exclude='./usr/lib/postgresql/*/lib/bitcode' \
			. |
			docker import --change "LABEL weir.made-from=debian-$suite" --change 'WORKDIR /data' -
	)
	rm -rf --one-file-system "$tree"
	if [[ $servers == *postgresql-* ]]; then
		id=$(with_cluster "$id") || give_up "$suite" "initdb failed in the image of $suite"
	fi

	for entry in "${missing[@]}"; do
		read -r image from server want optional <<<"$entry"
		[[ $from == "$suite" ]] || continue
		if got=$(check "$id" "$server" "$want"); then
			docker tag "$id" "$image"
			made=$((made + 1))
			say "$image: made from Debian $suite ($server $got)"
			continue
		fi
		say "$image: Debian $suite has no $server $want (any more)" >&2
		[[ $optional == optional ]] || exit 1
	done
	((made)) || docker rmi "$id" >/dev/null 2>&1 || true
}

# start COMMAND… runs it in the background.
start() {
	"$@" </dev/null &
	jobs+=($!)
}

docker version >"$work/docker.log" 2>&1 || die "no Docker engine answers: $(tail -n 1 "$work/docker.log")"

absent=()
for entry in "${images[@]}"; do
	read -r image _ <<<"$entry"
	if docker image inspect "$image" >/dev/null 2>&1; then
		say "$image: present"
	else
		absent+=("$entry")
	fi
done

missing=()
for entry in "${absent[@]}"; do
	read -r image _ server want _ <<<"$entry"
	start pull "$image" "$server" "$want" 2>"$work/pull-${#jobs[@]}.log"
done
for i in "${!absent[@]}"; do
	wait "${jobs[i]}" && continue
	read -r image _ <<<"${absent[i]}"
	missing+=("${absent[i]}")
	say "$image: not pulled: $(tail -n 1 "$work/pull-$i.log")" >&2
done
suites=$(printf '%s\n' "${missing[@]}" | awk 'NF > 1 && $2 != "-" && !seen[$2]++ { print $2 }')
[[ -n $suites ]] || exit 0

prepare
running=0 failed=0
for suite in $suites; do
	# Two at a time: a debootstrap waits for the network, then keeps one
	# processor busy.
	if ((running == 2)); then
		wait -n || failed=1
		running=$((running - 1))
	fi
	start make_from "$suite"
	running=$((running + 1))
done
for ((; running > 0; running--)); do
	wait -n || failed=1
done
exit "$failed"
