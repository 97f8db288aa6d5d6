"""The class `Setting`, of which the table of settings (`schema.py`) consists."""

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
else:  # the types in paths.py list all paths, which only a type checker needs
    AmountPath = FlagPath = IntegerPath = NamesPath = Path = RealPath = RealsPath = TextPath = WeightedPath = str

ROLES = ("user", "assistant", "system", "tool")
"""Roles of chat templates to which a spec can map other names in the rows, such as `user_roles = [human]`."""


@record
class Setting:
    """One setting of the language.

    `methods` and `engines` are the training methods and the engines of `launch` that read the setting; empty means all.
    An `inner` setting cannot be used outside of its clause. `alone` is the choice that the bare name means. `example`
    is a value for messages and pages, if the example of the kind would not explain the setting.
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
        """The name in a spec, which is the last part of the path: `micro` for `batch.micro`."""
        return self.path.rpartition(".")[2]

    @property
    def clause(self) -> str:
        """The clause that contains the setting: `batch` for `batch.micro`. For a setting that is a clause itself, such
        as `optimizer`, its own path.
        """
        return self.path if self.head else self.path.rpartition(".")[0]


ROLE_SETTINGS = (
    Setting("data.user_roles", NAMES, "names in the rows for the role user, such as human", inner=True),
    Setting("data.assistant_roles", NAMES, "names in the rows for the role assistant, such as gpt", inner=True),
    Setting("data.system_roles", NAMES, "names in the rows for the role system", inner=True),
    Setting("data.tool_roles", NAMES, "names in the rows for the role tool (results of tools)", inner=True),
)
"""The settings of `data` that list the names of each role in `ROLES`."""
