"""Write the `launch.sh` of a sweep. The script runs the launch.sh of one member, or of all members one after the
other.
"""

from xpc.compiler.lower.shell import shared
from xpc.grammar.package_data import read_sections


def launch(members: int) -> str:
    """The text of `launch.sh` for a sweep with `members` members."""
    own, common = read_sections(__file__, "sweep_launch.sh"), shared()
    text = own["head"] + common["bash"] + own["work"]
    return text.format(count=members, last=members - 1, name="launch.sh", help=common["help"])
