"""Programs that the interpreter with the training packages runs; they import no module of the compiler."""
