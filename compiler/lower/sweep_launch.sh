# The launch.sh of a sweep: str.format fills in the `{fields}`, so other braces are doubled.
#: head
#!/usr/bin/env bash
# Starts runs of this sweep: {count} members, whose names are in members.txt, numbered from 0 to {last}.
#
#   ./launch.sh MEMBER    start one member, by its name or number; further arguments go to its own launch.sh
#   ./launch.sh --all     start all, one after another; a failure does not stop the others
#   ./launch.sh --list    print their names, one per line
#   ./launch.sh --help    print this, and stop; ./launch.sh MEMBER --help lists the variables that a member reads
#
# A member that is started again resumes from its newest complete checkpoint.
# Exit status: that of the member; with --all 0 if all have trained, 1 if a member failed, 75 if the run was stopped
# on request (a signal or Ctrl-C), 130 after Ctrl-C twice; 2 wrong usage.
#: work: after the part `bash` of shell.sh
mapfile -t names <"$here/members.txt"

usage() {{
  echo "launch.sh: name one of {count} members, by name or number (./launch.sh --list prints them), or use --all" >&2
  exit 2
}}

find_member() {{
  local index
  case "$1" in
    *[!0-9]* | "") ;;
    *)
      if [ "${{#1}}" -le 6 ] && [ "$((10#$1))" -lt "${{#names[@]}}" ]; then
        member=${{names[10#$1]}}
        return 0
      fi
      ;;
  esac
  for index in "${{!names[@]}}"; do
    if [ "${{names[index]}}" = "$1" ]; then
      member=$1
      return 0
    fi
  done
  printf 'launch.sh: no member %q; ./launch.sh --list prints their names\n' "$1" >&2
  exit 2
}}

[ "$#" -gt 0 ] || usage
first=$1
shift
case "$first" in
  --list)
    [ "$#" -eq 0 ] || usage
    printf '%s\n' "${{names[@]}}"
    exit 0
    ;;
  --all) ;;
{help}  -*) usage ;;
  *)
    find_member "$first"
    exec "$here/members/$member/launch.sh" "$@"
    ;;
esac

# All of them. A signal goes to the running member, which saves and ends; the others are then not started.
child=
stopped=
stop() {{
  stopped=$1
  if [ -n "$child" ]; then
    kill -s "$1" "$child" 2>/dev/null || true
  fi
}}
trap 'stop TERM' TERM INT
trap 'stop USR1' USR1

failed=()
statuses=()
for member in "${{names[@]}}"; do
  printf 'launch.sh: member %s\n' "$member" >&2
  status=0
  "$here/members/$member/launch.sh" "$@" &
  child=$!
  wait "$child" || status=$?
  while [ -n "$stopped" ] && kill -s 0 "$child" 2>/dev/null; do
    status=0
    wait "$child" || status=$?
  done
  child=
  if [ "$status" -eq 130 ]; then # Ctrl-C twice
    exit 130
  fi
  if [ -n "$stopped" ] || [ "$status" -eq 75 ]; then
    printf 'launch.sh: asked to stop at member %s; --all resumes from there\n' "$member" >&2
    exit 75
  fi
  if [ "$status" -eq 2 ]; then
    exit 2
  fi
  statuses+=("$member" "$status")
  if [ "$status" -ne 0 ]; then
    failed+=("$member")
    printf 'launch.sh: member %s failed with exit status %s\n' "$member" "$status" >&2
  fi
done

# Each member with its best metric. The results are in the members' output folders, whatever becomes of this table.
if [ "$#" -eq 0 ]; then
  "${{PYTHON:-python3}}" "$here/members/${{names[0]}}/result.py" "$here/members" "${{statuses[@]}}" || true
fi
if [ "${{#failed[@]}}" -gt 0 ]; then
  printf 'launch.sh: %s of {count} members failed:\n' "${{#failed[@]}}" >&2
  printf '  %s\n' "${{failed[@]}}" >&2
  exit 1
fi
