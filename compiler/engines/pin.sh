if ! printf '%s  %s\n' {pin} "{bundle}/run.sha256" | sha256sum --check --status; then
  echo "{file}: the run in {bundle} is not the one that was submitted: submit it again" >&2
  exit 1
fi
if ! (cd -- "{bundle}" && sha256sum --check --quiet run.sha256 2>/dev/null) >&2; then
  echo "{file}: files in {bundle} were changed since they were compiled: compile the spec again" >&2
  exit 1
fi
