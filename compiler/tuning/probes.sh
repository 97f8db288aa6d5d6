#!/bin/sh
# Runs {many} probes of {steps} steps each, one after another, from the folder where {spec} is launched.
# A probe that has finished is not run again. With several nodes, start this script on each node, with NODE_RANK and
# MASTER_ADDR set.
here=$(dirname -- "$0")
export XPC_RETRIES=0
for probe in {numbers}; do
  "$here/$probe.bundle/launch.sh" || echo "probe $probe did not finish (status $?)"
done
echo "xpc tune {spec} --read $here"
