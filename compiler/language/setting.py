"""The class `Setting`. Each row of the table of settings (`schema.py`) is an instance of it."""

from __future__ import annotations

from xpc.compiler.language.kinds import NAMES, Kind
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.language.paths import AmountPath as AmountPath
    from xpc.compiler.language.paths import FlagPath as FlagPath
    from xpc.compiler.language.paths import IntegerPath as IntegerPath
    from xpc.compiler.language.paths import NamesPath as NamesPath
    from xpc.compiler.language.paths import Path as Path
    from xpc.compiler.language.paths import RealPath as RealPath
    from xpc.compiler.language.paths import RealsPath as RealsPath
    from xpc.compiler.language.paths import TextPath as TextPath
    from xpc.compiler.language.paths import WeightedPath as WeightedPath
else:  # only type checkers import paths.py: its long lists of paths would slow down each command
    AmountPath = FlagPath = IntegerPath = NamesPath = Path = RealPath = RealsPath = TextPath = WeightedPath = str

ROLES = ("user", "assistant", "system", "tool")
"""The roles in chat templates. If the rows of a source use another name for a role, a spec states it: `user_roles =
[human]`.
"""


@record
class Setting:
    """One setting of the language.

    `methods` are the training methods that read the setting, and `engines` the engines of `launch`; an empty tuple
    means all of them. An `inner` setting may stand only inside of its clause. `alone` is the choice that a setting has
    if the spec states only the setting's name. `example` is a value for messages and pages; without it, they show the
    example of the setting's kind.
    """

    path: Path
    kind: Kind
    doc: str
    default: object = None
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    args: tuple[str, ...] = ()
    bare: bool = True
    alone: str = ""
    inner: bool = False
    head: bool = False
    methods: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    example: str = ""

    @property
    def name(self) -> str:
        """The name of the setting in a spec, which is the last part of its path: `micro` for `batch.micro`."""
        return self.path.rpartition(".")[2]

    @property
    def clause(self) -> str:
        """The clause that contains the setting: `batch` for `batch.micro`. For a setting that is a clause, such as
        `optimizer`, it is the setting's own path.
        """
        return self.path if self.head else self.path.rpartition(".")[0]


ROLE_SETTINGS = (
    Setting("data.user_roles", NAMES, "names that the rows use for the role user, such as human", inner=True),
    Setting("data.assistant_roles", NAMES, "names that the rows use for the role assistant, such as gpt", inner=True),
    Setting("data.system_roles", NAMES, "names that the rows use for the role system", inner=True),
    Setting("data.tool_roles", NAMES, "names that the rows use for the role tool (results of tools)", inner=True),
)
"""A setting for each role in `ROLES`: `user_roles = [human]` lists the names that rows use for the role `user`."""
