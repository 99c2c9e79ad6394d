"""Why an entry fails: its minimal case with each parameter changed on its own, judged, and put into words.

Values are judged in rounds, one of every parameter a round, the most telling first: whatever ends it early, budget or
ctrl-C, leaves something said of each. Then thresholds of sizes are narrowed until neighbours differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from harness import operators, rules
from harness.case import Build, Case, CaseError, Subject
from harness.corpus import Entry
from harness.explanation import Explanation, Varied
from harness.limits import patience
from harness.minimise import pairs_for
from harness.mismatch import Mismatch
from harness.replay import Replayer
from harness.rules import Value
from harness.sandbox import Engine, HarnessError, UnusableImplementation, telling_line
from harness.signature import same
from harness.vary import Parameter, build_parameters, parameters
from harness.verdict import Verdict

BUDGET = 500
COSTLY_BUDGET = 40
"""Where each judgement takes a process: the failure ends it, or needs calls before it."""
RESERVED = 10
"""One part in so many of the budget is for narrowing thresholds."""
EDGES = 2
"""A size with more boundaries between failing and passing than that has a rule of another sort."""
SURER = 3
"""Times the runs by which shrinking looks for a failure that comes and goes: a value said to pass should not be luck."""

Outcome = Literal["fails", "otherwise", "passes", "inapplicable", "skipped"]


@dataclass(frozen=True)
class Progress:
    """judged: variants so far. planned: in all, unless the budget ends it. parameter, value: what is judged next."""

    judged: int
    planned: int
    parameter: str
    value: Value


@dataclass
class _Tried:
    """A parameter, and what became of its values."""

    parameter: Parameter
    outcomes: dict[Value, tuple[Outcome, str]] = field(default_factory=dict)

    def of(self, outcome: Outcome) -> list[Value]:
        found = [value for value, (what, _) in self.outcomes.items() if what == outcome]
        return sorted(found, key=lambda v: (isinstance(v, str), v if not isinstance(v, str) else 0))


class Explainer:
    """Explains one entry on a replayer's engines.

    Raises NotShown, from `begin`, and CaseError for a case that makes no call.
    """

    def __init__(
        self,
        replayer: Replayer,
        entry: Entry,
        *,
        budget: int | None = None,
        tell: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        """budget: variants to judge at most; None: `BUDGET`, or `COSTLY_BUDGET`. tell: called before each."""
        self.replayer, self.entry, self.tell = replayer, entry, tell
        costly = entry.verdict.costly or bool(entry.context)
        self.budget = budget if budget is not None else COSTLY_BUDGET if costly else BUDGET
        self.judged = 0
        self.mismatch: Mismatch | None = None
        """Of the entry's own call."""
        self.interrupted = False

    @property
    def engine(self) -> Engine:
        """Judges the entry and all variants: one without the checks or order of the entry stays where they are possible."""
        return self.replayer.engine(self.entry.subject)

    def begin(self) -> Verdict:
        """Judge the entry itself, in a process of its own: it must fail as it says. Sets `mismatch`."""
        verdict = self.replayer.show(self.entry, picture=True)
        self.mismatch = self.engine.mismatch
        self._illegal = self.engine.forbidden is not None
        return verdict

    def explain(self) -> Explanation:
        """Vary and judge until everything is tried or the budget is spent. KeyboardInterrupt ends it too, and sets
        `interrupted`."""
        tried = [_Tried(parameter, {parameter.own: ("fails", "")}) for parameter in self._parameters()]
        try:
            with patience(self.engine, self.entry.verdict.kind):
                for each, value, subject in _rounds(tried):
                    self._try(each, value, subject, sum(len(t.parameter.values) - 1 for t in tried))
                for each in tried:
                    self._narrow(each)
        except KeyboardInterrupt:
            self.interrupted = True
        return Explanation(
            tuple(_varied(each) for each in tried),
            self.mismatch.worst if self.mismatch else (),
            self.engine.device,
            self.judged,
            complete=all(set(t.parameter.values) <= set(t.outcomes) for t in tried),
        )

    def _parameters(self) -> list[Parameter]:
        subject, engine = self.entry.subject, self.engine
        about = engine.inspect(subject.operator, self.entry.implementation)
        if isinstance(subject, Build):
            return build_parameters(subject, self._builds(engine, subject, about.tunings))
        return parameters(subject, engine.device, tunings=about.tunings, schedules=about.executes)

    def _builds(self, engine: Engine, build: Build, tunings: int) -> Iterator[Build]:
        """Those of the implementation whose parameters differ from this one's in one place at most, among others."""
        own = build.params.get("tuning", 0)
        for params in operators.get(build.operator).build_matrix():
            differ = sum(build.params.get(name) != value for name, value in params.items())
            for tuning in dict.fromkeys((own, *range(tunings))) if differ == 0 else (own,) if differ == 1 else ():
                yield from engine.builds(build.operator, self.entry.implementation, {**params, "tuning": tuning})

    def _try(self, tried: _Tried, value: Value, subject: Subject, planned: int = 0, *, narrowing: bool = False) -> None:
        if self.judged >= (self.budget if narrowing else self.budget - self.budget // RESERVED):
            return
        self.tell(Progress(self.judged, min(max(planned, self.judged + 1), self.budget), tried.parameter.name, value))
        self.judged += 1
        tried.outcomes[value] = self._outcome(subject)

    def _outcome(self, subject: Subject) -> tuple[Outcome, str]:
        """What a variant comes to, and the kind or reason."""
        try:
            verdict = self._judge(subject)
        except CaseError as error:
            return "inapplicable", str(error)
        except (HarnessError, UnusableImplementation) as error:
            return "skipped", telling_line(error)
        if verdict.kind == "skip":
            return "skipped", verdict.message
        if same(verdict, self.entry.verdict):
            return "fails", ""
        if verdict.failed:
            return "otherwise", verdict.kind
        if isinstance(subject, Case) and self.engine.forbidden is not None and not self._illegal:
            return "inapplicable", self.engine.forbidden
        return "passes", ""

    def _judge(self, subject: Subject) -> Verdict:
        engine, spec = self.engine, self.entry.implementation
        if isinstance(subject, Build):
            return engine.build(subject, spec)
        if self.entry.context:
            engine.fresh()
            for case in self.entry.context:
                engine.judge(case, [spec])
        pairs = pairs_for(self.entry.verdict)
        return engine.judge(subject, [spec], pairs=pairs * SURER if pairs > 1 else 1, sure=False)[0]

    def _narrow(self, tried: _Tried) -> None:
        """Where a size that fails and one that passes have others between them: halve until they have none."""
        if tried.parameter.between is None:
            return
        known = {v: what for v, (what, _) in tried.outcomes.items() if what in ("fails", "passes")}
        sizes = sorted(v for v in known if isinstance(v, int))
        edges = [(a, b) for a, b in pairwise(sizes) if known[a] != known[b]]
        for low, high in edges if len(edges) <= EDGES else ():
            below = known[low]
            while high - low > 1:
                middle = (low + high) // 2
                self._try(tried, middle, tried.parameter.between(middle), narrowing=True)
                what = tried.outcomes.get(middle, ("", ""))[0]
                if what not in ("fails", "passes"):
                    break
                low, high = (middle, high) if what == below else (low, middle)


def _rounds(tried: list[_Tried]) -> Iterator[tuple[_Tried, Value, Subject]]:
    """The next value of every parameter, over and over."""
    left = [
        (each, iter([pair for pair in each.parameter.values.items() if pair[0] != each.parameter.own]))
        for each in tried
    ]
    while left:
        going = []
        for each, values in left:
            if (pair := next(values, None)) is not None:
                yield each, *pair
                going.append((each, values))
        left = going


def _varied(tried: _Tried) -> Varied:
    fails, passes, otherwise = tried.of("fails"), tried.of("passes"), tried.of("otherwise")
    unjudged = [value for value in tried.parameter.values if value not in tried.outcomes]
    return Varied(
        tried.parameter.name,
        rules.statement(tried.parameter.name, fails, passes, otherwise),
        _texts(fails),
        _texts(passes),
        tuple(f"{value}: {tried.outcomes[value][1]}" for value in otherwise),
        _texts(tried.of("inapplicable")),
        _texts([*tried.of("skipped"), *unjudged]),
    )


def _texts(values: list[Value]) -> tuple[str, ...]:
    return tuple(map(str, values))


def no_picture(verdict: Verdict) -> str:
    """Why there is no picture of a failure that has none, in one line."""
    if verdict.stage == "build":
        return "no picture: nothing was computed, the build failed"
    if verdict.stage in ("call", "run"):
        return f"no picture: the call gave no output to compare ({verdict.kind})"
    return f"no picture: the failure is not one of elements ({verdict.kind})"


def dimension_names(case: Case, output: str) -> tuple[str, ...]:
    """The names of an output's dimensions, where the operator names them; else none."""
    return operators.get(case.operator).dimensions(case).get(output, ())
