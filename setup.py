"""Finds the packages: each folder of grammar/, compiler/ and runtime/ with an `__init__.py`, below `xpc`."""

from setuptools import find_packages, setup

found = ["xpc.specs"]
for top in ("grammar", "compiler", "runtime"):
    found += [f"xpc.{top}", *(f"xpc.{top}.{one}" for one in find_packages(top))]
setup(packages=found)
