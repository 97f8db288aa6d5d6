# The parts of launch.sh in their order; launch.py joins the parts that a run needs.
# A part with `{fields}` goes through str.format, so its other braces are doubled.
#: head
#!/usr/bin/env bash
# Starts this run. README.md describes it; the files next to this script contain every value that it uses.
#
#   global batch   {gbs} = {micro} {samples} x {accum} accumulation x {readers}
#   processes      {world} = {nodes} {node_word} x {processes}
#   strategy       {strategy}, {precision}, on {hardware}
#   target         {target}
#
#   ./launch.sh                          train, or resume from the newest complete checkpoint
#   ./launch.sh --preflight              check this machine against the bundle, and stop
#   ./launch.sh --rehearse               first train two steps, with a save and a resume, in a folder of their own
#   ./launch.sh --dry-run                print the command, and stop
#   ./launch.sh --stage DIR [--wheels]   fetch models and rows (and packages) for machines without a network
#   ./launch.sh --prepare DIR            convert, tokenize and pack the rows once, without a GPU
#   ./launch.sh --help                   print this, and stop
#
# It takes no other arguments. Read from the environment:
#
{variables}#
# Exit status: 0 trained, now or before; 1 an error, with a message; 2 wrong usage; 75 stopped on request (a signal or
# Ctrl-C) after saving; 130 Ctrl-C twice; 76, 128 and more: a process, or something that it needs, was lost. After 75,
# 76, 128 and more the same command resumes.
#: stage

if [ "$only_stage" = true ]; then
  exec "$python" "$here/stage.py" "${@:2}"
fi
if [ "$only_prepare" = true ]; then
  exec "$python" "$here/prepare_rows.py" "${@:2}"
fi
#: rehearse
if [ "$rehearse" = true ] || { [ -n "${XPC_REHEARSE:-}" ] && [ "$#" -eq 0 ]; }; then
  exec "$python" "$here/rehearse.py"
fi
#: ranks

# The launcher below gives the ranks; those of the shell that starts this script belong to something else. With
# PYTHONOPTIMIZE, libraries fail that use their docstrings.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME
unset TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS PYTHONOPTIMIZE
#: number

number() {
  case "$2" in
    *[!0-9]* | "")
      printf 'launch.sh: %s must be a number, not %q\n' "$1" "$2" >&2
      exit 2
      ;;
  esac
}
if [ -n "${OMP_NUM_THREADS:-}" ]; then
  number OMP_NUM_THREADS "$OMP_NUM_THREADS"
fi
#: retries

# How often a run is restarted from its newest checkpoint after a process died. A run that reports an error is not.
export XPC_RETRIES="${{XPC_RETRIES:-{retries}}}"
number XPC_RETRIES "$XPC_RETRIES"
#: nodes: on several nodes

# {nodes} machines: the same script runs on each, with its own NODE_RANK.
: "${{NODE_RANK:?this run has {nodes} nodes: set NODE_RANK (0 to {last}), MASTER_ADDR and MASTER_PORT}}"
: "${{MASTER_ADDR:?this run has {nodes} nodes: set MASTER_ADDR to the address of node 0}}"
: "${{MASTER_PORT:?this run has {nodes} nodes: set MASTER_PORT to a free port of node 0}}"
number NODE_RANK "$NODE_RANK"
if [ "${{#NODE_RANK}}" -gt 9 ] || [ "$NODE_RANK" -gt {last} ]; then
  printf 'launch.sh: NODE_RANK must be 0 to {last}, not %q\n' "$NODE_RANK" >&2
  exit 2
fi
case "$MASTER_ADDR" in
  -* | *[!0-9A-Za-z.:_-]*)
    printf 'launch.sh: MASTER_ADDR must be a host, not %q\n' "$MASTER_ADDR" >&2
    exit 2
    ;;
esac
# Seconds that the nodes wait for each other, in the preflight and at the start of the run.
wait=${{XPC_NODE_WAIT:-300}}
number XPC_NODE_WAIT "$wait"
#: free_port: for an accelerate that does not find a free port itself

# accelerate 1.4 would use port 29500 for every run of a machine. Choose one below those that the system assigns.
free_port() {
  local port
  for _ in {1..50}; do
    port=$((10000 + RANDOM % 20000))
    if ! (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; then
      break
    fi
  done
  echo "$port"
}
#: port

port=${{MASTER_PORT:-{port}}}
number MASTER_PORT "$port"
if [ "${{#port}}" -gt 9 ] || [ "$port" -gt 65535 ]; then
  printf 'launch.sh: MASTER_PORT must be at most 65535, not %q\n' "$port" >&2
  exit 2
fi
#: c10d: launch local(rendezvous=c10d)

# Node 0 hosts the rendezvous, whatever its host name is; torch decides which node gets rank 0.
is_host=false
if [ "$NODE_RANK" -eq 0 ]; then
  is_host=true
fi
#: several_cpu: several processes on the CPU

# One thread per process; set more if the machine has more cores than processes.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"
#: one_cpu: one process on the CPU

# Every core; if unset, accelerate would choose a number and warn. Waiting threads sleep: where other programs run, too,
# threads that spin made small models more than ten times slower.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(nproc)}"
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"
#: segments: on GPUs

# Growing segments leave fewer gaps in a GPU's memory if the rows have many lengths.
if [ -z "${PYTORCH_ALLOC_CONF:-}${PYTORCH_CUDA_ALLOC_CONF:-}" ]; then
    export PYTORCH_ALLOC_CONF=expandable_segments:True
fi
#: locks: with DeepSpeed

# torch compiles DeepSpeed's extensions when the run starts, and holds a lock open meanwhile. For the lock of a
# compilation that was killed, it waits without an end.
locks=${TORCH_EXTENSIONS_DIR:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/torch_extensions}
while IFS= read -r lock; do
  since=$(stat -c %Y -- "$lock" 2>/dev/null) || continue
  opened=$(ls -l /proc/[0-9]*/fd 2>/dev/null) || true
  if [[ "$opened" != *"-> $lock"* ]]; then
    printf 'launch.sh: %s is %d minutes old, and no process here compiles: unless another machine does, ' \
      "$lock" "$((($(date +%s) - since) / 60))" >&2
    echo 'remove this file, because the run may wait for it without an end' >&2
  fi
done < <(find "$(readlink -f -- "$locks")" -maxdepth 3 -name lock -type f -mmin +1 2>/dev/null)
#: preflight

# All checks in one plain process; before a launch the launcher itself runs them.
if [ "$only_preflight" = true ]; then
  exec "$python" "$here/trainer/main.py" --preflight
fi
