"""Programs that run in the interpreter with the training packages. They cannot import a module of the compiler, because
that interpreter does not have xpc.
"""
