"""The rows of the table of settings (`schema.py`)."""

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
else:  # skip thousands of names that only a type checker needs
    AmountPath = FlagPath = IntegerPath = NamesPath = Path = RealPath = RealsPath = TextPath = WeightedPath = str

ROLES = ("user", "assistant", "system", "tool")
"""Roles of a chat template for which rows may use other names."""


@record
class Setting:
    """One row of the table of settings.

    `methods` and `engines` are the training methods and the engines of `launch` that read it; empty means all. A name
    that is `inner` cannot be used outside of its clause, and `alone` is the choice that the name without a value means.
    `example` is a value for helps and pages, if the example of its kind would explain little.
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
        """The last part of the path, which is the name in a spec."""
        return self.path.rpartition(".")[2]

    @property
    def clause(self) -> str:
        """The clause of the setting. A setting that is the value of a clause itself belongs to this clause."""
        return self.path if self.head else self.path.rpartition(".")[0]


ROLE_SETTINGS = (
    Setting("data.user_roles", NAMES, "names that the user has in the rows", inner=True),
    Setting("data.assistant_roles", NAMES, "names that the assistant has in the rows", inner=True),
    Setting("data.system_roles", NAMES, "names that the system prompt has in the rows", inner=True),
    Setting("data.tool_roles", NAMES, "names that the results of tools have in the rows", inner=True),
)
"""The settings of `data` that name the speakers of each role in `ROLES`."""
