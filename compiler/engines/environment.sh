# The parts of environment.sh, and the lines of a script that read it.
#: head
# launch.sh reads this file first, on every node: the environment that the spec's `launch` states.
#: setup: launch(setup=...)

xpc_bundle=${{BASH_SOURCE[0]%/*}}
if ! printf '%s  %s\n' {digest} "$xpc_bundle/{name}" | sha256sum --check --status; then
  echo "environment.sh: {name} was changed since the spec was compiled" >&2
  exit 1
fi
set +eu # modules and virtual environments may fail in a strict shell
# shellcheck disable=SC1090,SC1091
. "$xpc_bundle/{name}"
set -eu -o pipefail
#: read: the lines of a script that read the file

# shellcheck source=/dev/null
. "{where}/environment.sh"
