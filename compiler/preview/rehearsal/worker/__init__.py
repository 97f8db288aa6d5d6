"""Programs that are run by the interpreter with the training packages. They import no module of the compiler."""
