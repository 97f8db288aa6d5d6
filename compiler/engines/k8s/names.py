"""The files that a bundle has for Kubernetes."""

JOBSET, TRAINJOB = "jobset.yaml", "trainjob.yaml"
