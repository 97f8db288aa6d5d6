#!/usr/bin/env bash
# The demo from end to end: build a tiny model, compile the spec, run the emitted launcher, show the result.
# usage: demo.sh BIN OUT    (BIN contains python and xpc; all output goes below OUT)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
specs=${here%/*}
bin=$1
out=$2

say() { printf '\n== %s\n' "$*"; }

mkdir -p "$out"
rm -rf "$out/out"

say "a tiny model, built on the spot"
"$bin/python" "$here/build_model.py"

say "the spec"
sed '/^#/d;/^$/d' "$specs/quickstart.xp"

say "xpc compile specs/quickstart.xp"
"$bin/xpc" compile "$specs/quickstart.xp" -o "$out/quickstart.bundle"

say "quickstart.bundle/launch.sh"
(cd "$out" && PYTHON="$bin/python" XPC_DATA_ROOT="$specs" ./quickstart.bundle/launch.sh)

say "what it learned"
"$bin/python" "$here/show.py" "$out/out/quickstart"

say "next"
cat <<EOF
  look at the picture    $out/out/quickstart/picture.svg
  break the spec         in specs/, copy quickstart.xp, replace the line \`hardware 2 x cpu\` of the copy by the lines
                         \`hardware 2 x v100-32gb\` and \`precision bf16\`, and see what \`xpc check\` prints
  stop and go on         type this, press Ctrl-C after some steps, and type the second line again:
                         cd $out && rm -r out; export PYTHON=$bin/python XPC_DATA_ROOT=$specs
                         quickstart.bundle/launch.sh
  your own rows          docs/tutorial.md
EOF
