"""The arguments that a script gets from its command line: by argparse, typer and click, or hydra."""
