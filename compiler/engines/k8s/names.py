"""The names of a bundle's files for Kubernetes."""

JOBSET, TRAINJOB = "jobset.yaml", "trainjob.yaml"
