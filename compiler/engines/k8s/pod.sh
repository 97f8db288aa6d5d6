# The parts of the scripts of pods. A part with `{fields}` goes through str.format, so its other braces are doubled.
#: find
set -eu
{enter}
bundle={folder}/{place}
if [ ! -e "$bundle" ]; then
  bundle=/opt/{place}
fi
if [ ! -e "$bundle/run.sha256" ]; then
  echo '{file}: neither {folder}/{place} nor /opt/{place} is a bundle' >&2
  exit 1
fi
#: nodes: a TrainJob
if [ "${{PET_NNODES:-}}" != {nodes} ]; then
  echo "trainjob.yaml: the job has ${{PET_NNODES:-no}} nodes, and the bundle is for {nodes}" >&2
  exit 1
fi
#: node: a TrainJob on several nodes
export NODE_RANK="$PET_NODE_RANK" MASTER_ADDR="$PET_MASTER_ADDR" MASTER_PORT="$PET_MASTER_PORT"
export XPC_NODE_WAIT="${XPC_NODE_WAIT:-1800}" # a pod may wait for a machine and an image
#: unset: a TrainJob
unset "${!PET_@}"
#: index: a JobSet on several nodes
export NODE_RANK="$JOB_COMPLETION_INDEX"
export XPC_NODE_WAIT="${XPC_NODE_WAIT:-1800}" # a pod may wait for a machine and an image
#: server: the pod of a vLLM server
exec "${{PYTHON:-python3}}" "$bundle/trainer/vllm_server.py" {options}
