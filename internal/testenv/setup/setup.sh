#!/bin/sh
# Installs what `make test` needs beside Go: PostgreSQL, Mosquitto, Redis, Java, Maven, Chromium and Prometheus from
# Debian, a second PostgreSQL (18) and Apache Kafka from Maven Central into the cache directory. Only what is missing;
# nothing to do takes well under a second. Needs root or sudo for the Debian packages only.
# `setup.sh run` installs only what `make run` needs: PostgreSQL.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
postgres_version=18.4.0
kafka_version=4.4.0

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

cache_dir() {
	if [ -n "${HUBSTATE_CACHE_DIR:-}" ]; then echo "$HUBSTATE_CACHE_DIR"
	elif [ "$(id -u)" = 0 ]; then echo /var/cache/hubstate
	else echo "${XDG_CACHE_HOME:-$HOME/.cache}/hubstate"; fi
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; return; fi
	command -v sudo >/dev/null || die "need root or sudo to run: $*"
	sudo "$@"
}

# have COMMAND: also in the directories an ordinary user's PATH lacks.
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/usr/local/sbin/$1" ]; }
have_postgres() {
	command -v pg_config >/dev/null 2>&1 && [ -x "$(pg_config --bindir)/initdb" ] && return 0
	for p in /usr/lib/postgresql/1[5-9]/bin/initdb /usr/lib/postgresql/[2-9][0-9]/bin/initdb "$(cache_dir)"/postgresql/*/bin/initdb; do
		[ -x "$p" ] && return 0
	done
	return 1
}

java_package() {
	if apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then echo openjdk-17-jre-headless; else echo default-jre-headless; fi
}

missing_packages() {
	have_postgres || echo postgresql
	[ "$1" = run ] && return
	have mosquitto || echo mosquitto
	have redis-server || echo redis-server
	have java || java_package
	have mvn || echo maven
	have unzip || echo unzip
	have xz || echo xz-utils
	have promtool || echo prometheus
	have chromium || have google-chrome || echo chromium
}

# A package must not start its service: the tests start their own servers on their own ports.
install_packages() {
	policy=/usr/sbin/policy-rc.d
	made_policy=no
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
		as_root chmod 755 "$policy"
		made_policy=yes
	fi
	status=0
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" || status=$?
	if [ "$made_policy" = yes ]; then as_root rm -f "$policy"; fi
	return $status
}

debian_packages() {
	packages=$(missing_packages "$1")
	[ -n "$packages" ] || return 0
	# shellcheck disable=SC2086 # a list of words is meant
	set -- $packages
	have apt-get || die "no apt-get here; install by hand: $*"
	say "installing $*"
	as_root apt-get update -q
	install_packages "$@"
}

postgres_artifact() {
	case "$(uname -s)-$(uname -m)" in
		Linux-x86_64) echo linux-amd64 ;;
		Linux-aarch64) echo linux-arm64v8 ;;
		Darwin-x86_64) echo darwin-amd64 ;;
		Darwin-arm64) echo darwin-arm64v8 ;;
		*) die "no PostgreSQL $postgres_version for $(uname -sm)" ;;
	esac
}

# Everything is unpacked beside its place and renamed: an interrupted set-up leaves nothing half made.
postgres18() {
	place=$1/postgresql/$postgres_version
	[ -x "$place/bin/postgres" ] && return
	say "fetching PostgreSQL $postgres_version"
	work=$(mktemp -d)
	mvn -q -B dependency:copy -DoutputDirectory="$work/jar" \
		-Dartifact="io.zonky.test.postgres:embedded-postgres-binaries-$(postgres_artifact):$postgres_version"
	unzip -q -o "$work"/jar/*.jar '*.txz' -d "$work/txz"
	mkdir -p "$work/tree"
	tar -xJf "$work"/txz/*.txz -C "$work/tree"
	publish "$work/tree" "$place"
	rm -rf "$work"
}

kafka() {
	place=$1/kafka/$kafka_version
	[ -d "$place" ] && return
	say "fetching Apache Kafka $kafka_version"
	work=$(mktemp -d)
	cp "$here/kafka-pom.xml" "$work/pom.xml"
	(cd "$work" && mvn -q -B dependency:copy-dependencies -DoutputDirectory="$work/lib" -DincludeScope=runtime)
	publish "$work/lib" "$place"
	rm -rf "$work"
}

# An archive of Kafka's loaded classes makes each later start three times cheaper (1.2 s of CPU instead of 3.3 s), and the
# tests start many. Java writes it when a server that ran with this flag ends. Without it everything works, slower.
kafka_archive() {
	place=$1/kafka/$kafka_version
	[ -e "$place/kafka.jsa" ] && return
	say "preparing fast starts of Kafka"
	work=$(mktemp -d)
	cat > "$work/server.properties" <<-END
		process.roles=broker,controller
		node.id=1
		listeners=PLAINTEXT://127.0.0.1:31990,CONTROLLER://127.0.0.1:31991
		controller.listener.names=CONTROLLER
		controller.quorum.voters=1@127.0.0.1:31991
		log.dirs=$work/data
	END
	java="java -Xmx256m -XX:+UseSerialGC -Dlog4j2.configurationFile=file:$here/../../embedded/log4j2.yaml"
	$java -cp "$place/*" kafka.tools.StorageTool format -t aHVic3RhdGUtbG9jYWwxMg -c "$work/server.properties" >/dev/null
	$java -XX:ArchiveClassesAtExit="$work/kafka.jsa" -cp "$place/*" kafka.Kafka "$work/server.properties" >"$work/log" 2>&1 &
	server=$!
	tries=0
	until grep -q 'Kafka Server started' "$work/log" || [ $tries -ge 600 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	kill -TERM $server 2>/dev/null || true
	wait $server || true
	if [ -s "$work/kafka.jsa" ]; then mv "$work/kafka.jsa" "$place/kafka.jsa"; else say "no class archive was written; going on without"; fi
	rm -rf "$work"
}

publish() {
	mkdir -p "$(dirname "$2")"
	rm -rf "$2.new"
	cp -a "$1" "$2.new"
	chmod -R a+rX "$2.new"
	mv "$2.new" "$2"
}

what=${1:-all}
debian_packages "$what"
if [ "$what" != run ]; then
	cache=$(cache_dir)
	mkdir -p "$cache"
	postgres18 "$cache"
	kafka "$cache"
	kafka_archive "$cache"
fi
say "everything needed is here"
