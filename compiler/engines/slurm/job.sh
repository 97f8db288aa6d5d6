# The parts of job.sbatch in their order, of which job.py joins those that a job needs.
# A part with `{fields}` goes through str.format, so its other braces are doubled.
#: head
#!/usr/bin/env bash
{options}
# Starts launch.sh on {nodes} of a Slurm cluster.{server_head}
#
#   sbatch job.sbatch                        submit; relative folders of the run begin in the current folder
#   sbatch --qos=high --mem=200G job.sbatch  these options override the #SBATCH lines above
#
# The job gets your environment: activate the virtual environment first, or set PYTHON. The bundle, the data and the
# output must be in folders that every node sees.
#
# A job that is asked to stop (near its limit, or to make room for another job) saves a checkpoint, and {ending}
#: start
set -euo pipefail

if [ -z "${SLURM_JOB_ID:-}" ]; then
  echo "job.sbatch: this is a Slurm job; submit it: sbatch job.sbatch" >&2
  exit 2
fi
say() { printf 'job.sbatch: %s\n' "$*"; }

# Runs a command to its end, passes USR1 and TERM on to it as USR1, and puts its exit status into $status. The command
# may be srun, which kills its tasks if it gets TERM. A subshell waits in the foreground: bash may lose the status of a
# command that ends at the moment when a signal interrupts `wait`.
stop_signal="" own=""
# shellcheck disable=SC2317,SC2329 # the traps call it
pass_on() {
  local child
  stop_signal=${stop_signal:-$1}
  if { read -r child <"$own/child"; } 2>/dev/null; then kill -s USR1 "$child" 2>/dev/null || true; fi
}
trap 'pass_on USR1' USR1
trap 'pass_on TERM' TERM
run() {
  status=138
  if [ -n "$stop_signal" ]; then return; fi
  (
    trap : USR1 TERM
    code=0
    bash -c 'echo "$$" >"$0"; exec "$@"' "$own/child" "$@" || code=$?
    echo "$code" >"$own/status"
  ) &
  local waiter=$!
#watch#  while kill -0 "$waiter" 2>/dev/null; do wait "$waiter" || true; done
  status=137
  { read -r status <"$own/status"; } 2>/dev/null || true
  rm -f -- "$own/child"
}

# After the traps: for a node that a signal ends, srun reports the signal instead of a later failure of another node.
own=$(mktemp -d)
trap 'rm -rf -- "$own"' EXIT

# The part of each node: srun starts this script again on every node. srun returns the highest status of all nodes. At
# the first status that is not 0, srun sends the other nodes TERM, which the run handles as a request to stop.
if [ "${1:-}" = node ]; then
  export NODE_RANK=$SLURM_NODEID XPC_RETRIES=0 # the batch shell retries, on all nodes
  # Compile kernels once per job and node: in a shared folder the nodes would wait for each other.
  export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$own/triton}
  run "$XPC_JOB_BUNDLE/launch.sh"
  # 138 and 143: the signal came before the run could handle it. Any other 143 becomes 137, because the batch shell
  # reads 143 as "the node's shell got TERM before this script could handle it".
  if [ -n "$stop_signal" ] && { [ "$status" = 138 ] || [ "$status" = 143 ]; }; then status=75; fi
  if [ "$status" = 143 ]; then status=137; fi
  # A node that starts slowly could not yet handle the TERM that follows a failure.
  if [ "$status" != 0 ] && [ "$status" != 75 ] && ((SECONDS < 5)); then sleep $((5 - SECONDS)) || true; fi
  if [ "$status" = 75 ] && [ "$stop_signal" = USR1 ]; then
    # The batch shell passed the request on; it also runs on the first node and finds the mark there.
    if [ "$NODE_RANK" = 0 ]; then touch "$XPC_JOB_STOPPED"; fi
    exit 0
  fi
  # After TERM, let the other nodes exit first: the status of a node that failed counts more than this 75.
  if [ "$status" = 75 ]; then sleep 3 || true; fi
  if ((status > 0 && status < 55)); then status=$((200 + status)); fi
  exit "$status"
fi
#: watch: with a vLLM server, in place of #watch# above
  if [ -n "${server:-}" ]; then
    watch &
    watcher=$!
  fi
#: server_role: with a vLLM server
if [ "${{1:-}}" = server ]; then{read}
  exec "${{PYTHON:-python3}}" "$XPC_JOB_BUNDLE/trainer/vllm_server.py" {options}
fi
#: watched: with a vLLM server
# If the server ends, end the training, which would wait for it forever.
watch() {
  while kill -0 "$server" 2>/dev/null; do sleep 2; done
  local child
  if read -r child <"$own/child"; then kill -s TERM "$child"; fi
}
#: batch

# The batch shell, on the first node. Slurm runs a copy of this script, so ask for its original path. In an array,
# SLURM_JOB_ID of the last task would name the complete array.
id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
id=${id:-$SLURM_JOB_ID}
job=$(scontrol show job "$id")
script=$(sed -n '/^ *Command=/{s///p;q;}' <<<"$job")
if [ -n "$script" ]; then script=$(realpath -ms -- "$script"); fi # a container mounts absolute paths
here=${script%/*}
#: member: in an array
if ! printf '%s  %s\n' {pin} "$here/runs.sha256" | sha256sum --check --status; then
  say "the sweep in $here is not the one that was submitted: submit it again" >&2
  exit 1
fi
pin=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))s/ .*//p" "$here/runs.sha256")
mapfile -t members < <("$here/launch.sh" --list)
here=$here/members/${{members[SLURM_ARRAY_TASK_ID]}}
#: check
if [ ! -f "$here/launch.sh" ]; then
  say "no bundle in ${here:-the folder of this job}: submit the job.sbatch of a bundle by its path" >&2
  exit 1
fi
#: topology
if [ "$SLURM_JOB_NUM_NODES" != {nodes} ]; then
  say "this bundle is for {nodes} nodes, and Slurm gave $SLURM_JOB_NUM_NODES: leave --nodes out" >&2
  exit 1
fi

# A node's name, or its address in Slurm if the other nodes cannot resolve the name.
address() {{
  if getent ahosts "$1" >/dev/null 2>&1; then
    printf '%s\n' "$1"
  else
    scontrol show node "$1" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p'
  fi
}}
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
restarts=${{SLURM_RESTART_COUNT:-0}}
MASTER_ADDR=$(address "${{hosts[0]}}")
XPC_JOB_BUNDLE=$here
XPC_JOB_STOPPED=$own/stopped
export MASTER_ADDR XPC_JOB_BUNDLE XPC_JOB_STOPPED
if [ -n "${{SLURM_CPUS_PER_TASK:-}}" ]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
#: inside: in a container
# The container's /tmp may not be the node's, so the mark of a stopped run is in the folder of the submission.
XPC_JOB_STOPPED=$PWD/.xpc-stopped-$SLURM_JOB_ID-$restarts
trap 'rm -rf -- "$own" "$XPC_JOB_STOPPED"' EXIT
#: pyxis: launch slurm(container=pyxis)

# pyxis starts a container on each node with the bundle, the folder of the job and the mounts of the spec.
root=${{script%/*}}
container=(
  --container-image={image} "--container-workdir=$PWD"
  "--container-mounts=$root:$root,$PWD:$PWD{mounts}"
)
#: apptainer: launch slurm(container=apptainer)

# apptainer starts a container on each node with the bundle, the folder of the job and the mounts of the spec.
root=${{script%/*}}
container=(
  apptainer exec{gpu} --pwd "$PWD" --bind "$root:$root" --bind "$PWD:$PWD"{mounts} {image}
)
#: step

# One task per node; its processes may use every core that the job has there.
step=(
  srun --nodes={train} --ntasks={train} --ntasks-per-node=1 --relative=0
  --wait=60 --kill-on-bad-exit=1 --cpu-bind=none --export=ALL
  {srun}bash "$script" node
)
#: server: with a vLLM server; `serve` follows in each attempt

# The last node generates completions. Wait up to XPC_SERVER_WAIT seconds: it may have to download a model.
XPC_VLLM_HOST=$(address "${{hosts[{train}]}}")
export XPC_VLLM_HOST
serve() {{
  srun --nodes=1 --ntasks=1 --relative={train} --cpu-bind=none --export=ALL {srun}bash "$script" server &
  server=$!
  local last=$((SECONDS + ${{XPC_SERVER_WAIT:-1800}})) began=$SECONDS due=10
  until [ -n "$stop_signal" ] || "${{PYTHON:-python3}}" "$here/trainer/vllm_server.py" --answers "$XPC_VLLM_HOST"; do
    if ! kill -0 "$server" 2>/dev/null; then
      say "the vLLM server on ${{hosts[{train}]}} ended; its message is above" >&2
      exit 1
    fi
    if ((SECONDS - began >= due)); then
      say "waiting for the vLLM server on ${{hosts[{train}]}}, $((SECONDS - began)) s so far"
      due=$((due + (due < 60 ? due : 60)))
    fi
    if ((SECONDS > last)); then
      say "the vLLM server on ${{hosts[{train}]}} did not answer within ${{XPC_SERVER_WAIT:-1800}} seconds" >&2
      exit 1
    fi
    sleep 2
  done
  say "the vLLM server runs on ${{hosts[{train}]}}"
}}
#: attempts

# A run that failed for a temporary reason, such as a killed process or a lost connection, is retried on the same nodes.
# A run that ended with an error message, or that was asked to stop, is not.
attempts={attempts}
for ((attempt = 1; attempt <= attempts; attempt++)); do
  # Two jobs on one node get different ports; so does a job that returns to a node before its old port is free.
  MASTER_PORT=$((10000 + (SLURM_JOB_ID + 1009 * restarts + 211 * (attempt - 1)) % 20000))
  XPC_ATTEMPT="$attempt of $attempts"
  export MASTER_PORT XPC_ATTEMPT
  say "job $SLURM_JOB_ID, restart $restarts, nodes $SLURM_JOB_NODELIST, rendezvous $MASTER_ADDR:$MASTER_PORT"
#: run
  run "${step[@]}"
  again=false
#: lost: on several nodes
  # If a node is lost, the run on the others ends before Slurm notices. Test whether all nodes still start tasks.
  if [ "$status" != 0 ] && [ "$status" != 75 ] && [ -z "$stop_signal" ]; then
    timeout --kill-after=5 60 srun --nodes={nodes} --ntasks={nodes} --overlap true || again=true
  fi
  # 143: a node was still starting when another node stopped. Its status is higher than the 75 of a stop.
  if [ "$status" = 143 ]; then status=75; fi
#: teardown: with a vLLM server
  if [ "$status" != 0 ] && [ "$again" = false ] && ! kill -0 "$server" 2>/dev/null; then
    say "the vLLM server on ${hosts[-1]} ended before the training" >&2
    exit 1
  fi
  kill "$watcher" 2>/dev/null || true
  kill -s TERM "$server" 2>/dev/null || true # the end of the job ends the rest of it
#: next
  if [ -n "$stop_signal" ] || [ "$again" = true ] || ((status != 76 && (status <= 131 || status > 200))); then break; fi
  if ((attempt < attempts)); then
    say "restarting from the newest complete checkpoint, if there is one: attempt $((attempt + 1)) of $attempts"
{wait}  fi
done
#: wait: with a vLLM server, in the part above
    wait "$server" || true
#: end
if ((status > 200 && status < 255)); then status=$((status - 200)); fi

# Stopped early: by a signal to the job, before or after the run could save, or by one to its nodes.
if [ -n "$stop_signal" ] && [ "$status" = 138 ]; then again=true; fi
if [ -e "$XPC_JOB_STOPPED" ] || [ "$status" = 75 ]; then again=true; fi
if [ "$again" = true ]; then
  job=$(scontrol show job "$id")
  case "$job" in
    *JobState=COMPLETING*) ;; # Slurm has decided already, as for a cancelled job
    *Requeue=1*)
      say "stopped early; queued again, to resume from the newest checkpoint"
      scontrol requeue "$id" && exit 0
      ;;
    *) say "stopped early; submit it again to resume from the newest checkpoint" ;;
  esac
  exit 75
fi
exit "$status"
