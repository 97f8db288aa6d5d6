"""Programs that the interpreter with the training packages runs; they import nothing of the compiler."""
