"""Find the packages: grammar/, compiler/, runtime/ and their folders with an `__init__.py`, each as `xpc.NAME`."""

from setuptools import find_packages, setup

found = ["xpc.specs"]
for top in ("grammar", "compiler", "runtime"):
    found += [f"xpc.{top}", *(f"xpc.{top}.{one}" for one in find_packages(top))]
setup(packages=found)
