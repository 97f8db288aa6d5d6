"""The names of the files that the Kubernetes engine adds to a bundle."""

JOBSET, TRAINJOB = "jobset.yaml", "trainjob.yaml"
