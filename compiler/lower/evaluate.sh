#!/usr/bin/env bash
# Evaluates the trained model with lm-evaluation-harness {version}. evaluation.json next to it names the tasks.
#
#   processes      {processes}
#   results        eval/results.json in the output folder of the run
#
#   ./evaluate.sh             evaluate; start it in the folder where launch.sh was started
#   ./evaluate.sh --dry-run   print the command, and stop
#   ./evaluate.sh --help      print this, and stop
#
# It takes no other arguments. Read from the environment:
#
#   PYTHON       the interpreter (python3)
#   XPC_STAGED   a folder filled by launch.sh --stage, which is read instead of the hub
#
# Exit status: 0 evaluated; 1 an error, with a message; 2 wrong usage.
