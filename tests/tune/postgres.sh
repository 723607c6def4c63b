#!/usr/bin/env bash
# Starts a PostgreSQL server on a Unix socket, as a user who is not root, and runs a command with its address:
#   postgres.sh [--restart-after SECONDS] COMMAND [ARGUMENT…]       an argument {} is replaced by the address
# With --restart-after the server is stopped without a shutdown after these seconds, and started again a second later.
# Exits with 77 if there is no PostgreSQL.
set -euo pipefail
restart=
[[ $1 == --restart-after ]] && { restart=$2; shift 2; }
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
[[ -x $bin/postgres ]] || bin=$(dirname "$(command -v postgres || echo /none/postgres)")
[[ -x $bin/postgres && -x $bin/initdb ]] || { echo "no PostgreSQL (Debian: postgresql)"; exit 77; }
work=$(mktemp -d /tmp/tutti-pg-XXXXXX)
as_user=()
if [[ $(id -u) == 0 ]]; then
    user=$(getent passwd postgres >/dev/null && echo postgres || echo nobody)
    as_user=(setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups)
    chown "$user" "$work"
fi
server() { (cd "$work" && "${as_user[@]}" "$bin/pg_ctl" -D "$work/data" -w -l "$work/log" "$@" >"$work/pg_ctl" 2>&1); }
trap 'server -m immediate stop || true; rm -rf "$work"' EXIT
(cd "$work" && "${as_user[@]}" "$bin/initdb" -D "$work/data" -U tutti -A trust -E UTF8 --no-sync >"$work/initdb" 2>&1) ||
    { cat "$work/initdb"; exit 1; }
start=(-o "-c listen_addresses='' -c unix_socket_directories=$work -c max_connections=40" start)
server "${start[@]}" || { cat "$work/log" "$work/pg_ctl"; exit 1; }
address="postgresql://tutti@/postgres?host=$work"
if [[ -n $restart ]]; then
    (sleep "$restart"; server -m immediate stop; sleep 1; server "${start[@]}") &
fi
"${@//\{\}/$address}"
wait
