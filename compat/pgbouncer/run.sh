#!/bin/sh
# Runs PgBouncer's own tests against Cove.
#
#   compat/pgbouncer/run.sh CHECKOUT COVE [pytest arguments]
#
# CHECKOUT is a configured source tree of PgBouncer 1.25 (its tests read config.mak and
# include/bouncer.h), COVE the binary. PYTHON is an interpreter with the packages of the tree's
# requirements.txt, python3 unless said otherwise; PostgreSQL's programs are taken from PATH.
# The tests start servers, which refuse to run as root: run this as another user.
set -eu

if [ $# -lt 2 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
checkout=$(cd "$1" && pwd)
cove=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
shift 2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# The tests call `EXE [--reboot] --quiet FILE`, and `EXE` with other words only to find out what it
# can do.
cat > "$work/pgbouncer" <<WRAPPER
#!/bin/sh
for word; do
    case \$word in
    --quiet | -q) ;;
    --reboot | -R) echo "sockets are not handed over" >&2; exit 1 ;;
    -*) "$cove" version | sed 's/^cove \(.*\)/PgBouncer 1.25.2 (Cove \1)/'; exit ;;
    *) exec "$cove" bouncer --quiet --pgbouncer-ini "\$word" ;;
    esac
done
WRAPPER
chmod +x "$work/pgbouncer"

cd "$checkout/test"
BOUNCER_EXE="$work/pgbouncer" HOME="$work" \
    "${PYTHON:-python3}" -m pytest -p no:cacheprovider \
    -o asyncio_default_fixture_loop_scope=function -q "$@"
