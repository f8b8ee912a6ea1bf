"""Templates of programs for the booking task: right ones, and the typical ways to get them wrong.

A template is Python source with three kinds of holes:

- `$name` is a variable; its name is drawn from `NAMES`, the same one throughout a program.
- `@slot` is a place where a fault may enter; filled from `slots`, or from the fault's own fillings.
- `«one|other»` is a choice between spellings that mean the same; it may contain line breaks and be nested.

A line that comes out with indentation only is dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

RIGHT = "right"
"""Label of a program without fault."""
INCLUSIVE = "inclusive_endpoint"
"""Label of the fault that the booking study watches: a booking still counts at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One way to solve the task, with the faults that it invites."""

    text: str
    """The program."""
    slots: Mapping[str, str] = field(default_factory=dict)
    """What fills each slot of a right program."""
    styles: tuple[Mapping[str, str], ...] = ({},)
    """Slots that must be filled together, such as an import and the calls that it allows."""
    faults: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Fault label → slots that it fills otherwise."""
    always_wrong: str | None = None
    """Label of an algorithm that answers another question, whatever its slots hold."""

    @property
    def labels(self) -> frozenset[str]:
        """Every label that this template can produce."""
        return frozenset({self.always_wrong} if self.always_wrong else {RIGHT, *self.faults})


PAIRS: tuple[tuple[str, str], ...] = (("s", "e"), ("start", "end"), ("a", "b"), ("x", "y"))
"""Names of the two ends of a booking: `$s`, `$e`, and of another one: `$p`, `$q`."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "cur": ("active", "count", "current", "n"),
    "best": ("best", "peak", "most", "result"),
    "events": ("events", "points", "changes"),
    "heap": ("heap", "rooms", "queue"),
    "diff": ("diff", "delta", "change"),
    "starts": ("starts", "begins", "opens"),
    "ends": ("ends", "finishes", "closes"),
    "t": ("t", "time", "point"),
    "d": ("d", "step", "sign"),
    "i": ("i", "k"),
    "j": ("j", "m"),
    "rows": ("rows", "items", "ordered"),
}
"""Variable → names to draw from."""

HEAD = "def required_capacity(bookings«|: list[list[int]]»)«| -> int»:"
ZERO = "«$cur = $best = 0|$cur = 0\n    $best = 0|$best = 0\n    $cur = 0»"
RAISE = "«$best = max($best, $cur)|if $cur > $best:\n            $best = $cur»"
UNIQUE = "set(map(tuple, bookings))"
ANSWER = "$best"
OFF_BY_ONE: Mapping[str, str] = {"answer": "$best «+|-» 1"}
LAST_VALUE: Mapping[str, str] = {"answer": "$cur"}

SWEEP = Algorithm(
    text=f"""{HEAD}
    $events = []
    for $s, $e in @source:
        «$events.append(($s, 1))
        $events.append(($e, -1))|$events += [($s, 1), ($e, -1)]»
    @order
    {ZERO}
    for «$t|_», $d in $events:
        $cur += $d
        @raise
    return @answer
""",
    slots={
        "source": "bookings",
        "order": "«$events.sort()|$events = sorted($events)|$events.sort(key=lambda p: (p[0], p[1]))»",
        "raise": RAISE,
        "answer": ANSWER,
    },
    faults={
        INCLUSIVE: {"order": "$events.sort(key=lambda p: (p[0], -p[1]))"},
        "ties_by_input_order": {
            "order": "«$events.sort(key=lambda p: p[0])|$events = sorted($events, key=lambda p: p[0])»"
        },
        "unsorted": {"order": ""},
        "deduplicates": {"source": UNIQUE},
        "off_by_one": OFF_BY_ONE,
        "last_value": LAST_VALUE,
    },
)

SWEEP_LISTS = Algorithm(
    text=f"""{HEAD}
    $events = @lists
    {ZERO}
    for «$t|_», $d in @order:
        $cur += $d
        {RAISE}
    return @answer
""",
    slots={
        "lists": "[($e, -1) for $s, $e in bookings] + [($s, 1) for $s, $e in bookings]",
        "order": "«sorted($events)|sorted($events, key=lambda p: p[0])»",
        "answer": ANSWER,
    },
    faults={
        INCLUSIVE: {
            "lists": "[($s, 1) for $s, $e in bookings] + [($e, -1) for $s, $e in bookings]",
            "order": "sorted($events, key=lambda p: p[0])",
        },
        "unsorted": {"order": "$events"},
        "off_by_one": OFF_BY_ONE,
        "last_value": LAST_VALUE,
    },
)

HEAP = Algorithm(
    text=f"""@import

{HEAD}
    $heap = []
    $best = 0
    for $s, $e in @source:
        while $heap and $heap[0] @frees $s:
            @pop($heap)
        @push($heap, $e)
        $best = max($best, len($heap))
    return @answer
""",
    styles=(
        {"import": "import heapq", "push": "heapq.heappush", "pop": "heapq.heappop"},
        {"import": "from heapq import heappop, heappush", "push": "heappush", "pop": "heappop"},
    ),
    slots={"source": "sorted(bookings)", "frees": "<=", "answer": ANSWER},
    faults={
        INCLUSIVE: {"frees": "<"},
        "unsorted": {"source": "bookings"},
        "deduplicates": {"source": f"sorted({UNIQUE})"},
        "off_by_one": OFF_BY_ONE,
        "last_value": {"answer": "len($heap)"},
    },
)

ROOMS = Algorithm(
    text=f"""{HEAD}
    $heap = []
    for $s, $e in @source:
        for $i, $t in enumerate($heap):
            if $t @frees $s:
                $heap[$i] = $e
                break
        else:
            $heap.append($e)
    return @answer
""",
    slots={"source": "sorted(bookings)", "frees": "<=", "answer": "len($heap)"},
    faults={
        INCLUSIVE: {"frees": "<"},
        "unsorted": {"source": "bookings"},
        "deduplicates": {"source": f"sorted({UNIQUE})"},
        "off_by_one": {"answer": "len($heap) «+|-» 1"},
    },
)

DIFFERENCE_ARRAY = Algorithm(
    text=f"""{HEAD}
    $diff = [0] * 10002
    for $s, $e in @source:
        $diff[$s] += 1
        $diff[@leaves] -= 1
    {ZERO}
    for $d in $diff:
        $cur += $d
        {RAISE}
    return @answer
""",
    slots={"source": "bookings", "leaves": "$e", "answer": ANSWER},
    faults={
        INCLUSIVE: {"leaves": "$e + 1"},
        "leaves_early": {"leaves": "$e - 1"},
        "deduplicates": {"source": UNIQUE},
        "off_by_one": OFF_BY_ONE,
        "last_value": LAST_VALUE,
    },
)

DIFFERENCE_MAP = Algorithm(
    text=f"""@import
{HEAD}
    $diff = @empty
    for $s, $e in @source:
        @enter
        @leave
    {ZERO}
    for $t in @order:
        $cur += $diff[$t]
        {RAISE}
    return @answer
""",
    styles=(
        {
            "import": "",
            "empty": "{}",
            "enter": "$diff[$s] = $diff.get($s, 0) + 1",
            "leave": "$diff[@leaves] = $diff.get(@leaves, 0) - 1",
        },
        {
            "import": "from collections import defaultdict\n",
            "empty": "defaultdict(int)",
            "enter": "$diff[$s] += 1",
            "leave": "$diff[@leaves] -= 1",
        },
        {
            "import": "from collections import Counter\n",
            "empty": "Counter()",
            "enter": "$diff[$s] += 1",
            "leave": "$diff[@leaves] -= 1",
        },
    ),
    slots={"source": "bookings", "leaves": "$e", "order": "sorted($diff)", "answer": ANSWER},
    faults={
        INCLUSIVE: {"leaves": "$e + 1"},
        "leaves_early": {"leaves": "$e - 1"},
        "unsorted": {"order": "$diff"},
        "deduplicates": {"source": UNIQUE},
        "off_by_one": OFF_BY_ONE,
        "last_value": LAST_VALUE,
    },
)

COUNT_AT_STARTS = Algorithm(
    text=f"""{HEAD}
    $best = 0
    for $s, $e in bookings:
        $cur = 0
        for $p, $q in @source:
            if @inside:
                $cur += 1
        «$best = max($best, $cur)|if $cur > $best:\n            $best = $cur»
    return @answer
""",
    slots={"source": "bookings", "inside": "«$p <= $s < $q|$p <= $s and $s < $q»", "answer": ANSWER},
    faults={
        INCLUSIVE: {"inside": "«$p <= $s <= $q|$p <= $s and $s <= $q»"},
        "excludes_start": {"inside": "$p < $s < $q"},
        "any_overlap": {"inside": "«$p < $e and $s < $q|$s < $q and $p < $e»"},
        "deduplicates": {"source": UNIQUE},
        "off_by_one": OFF_BY_ONE,
        "last_value": LAST_VALUE,
    },
)

COUNT_COMPREHENSION = Algorithm(
    text=f"""{HEAD}
    @guard
    return max(@count for $s, $e in bookings)@off
""",
    slots={
        "guard": "if not bookings:\n        return 0",
        "count": "sum(@inside for $p, $q in bookings)",
        "inside": "$p <= $s < $q",
        "off": "",
    },
    faults={
        INCLUSIVE: {"inside": "$p <= $s <= $q"},
        "excludes_start": {"inside": "$p < $s < $q"},
        "any_overlap": {"inside": "$p < $e and $s < $q"},
        "empty_crash": {"guard": ""},
        "off_by_one": {"off": " «+|-» 1"},
    },
)

TWO_POINTERS = Algorithm(
    text=f"""{HEAD}
    $starts = sorted($s for $s, $e in bookings)
    $ends = @ends
    $i = $j = $best = 0
    while $i < len($starts):
        if $starts[$i] @before $ends[$j]:
            $i += 1
            $best = max($best, $i - $j)
        else:
            $j += 1
    return @answer
""",
    slots={"ends": "sorted($e for $s, $e in bookings)", "before": "<", "answer": ANSWER},
    faults={
        INCLUSIVE: {"before": "<="},
        "unsorted": {"ends": "[$e for $s, $e in bookings]"},
        "off_by_one": OFF_BY_ONE,
        "last_value": {"answer": "$i - $j"},
    },
)

FREED_PLACES = Algorithm(
    text=f"""{HEAD}
    $starts = sorted($p[0] for $p in bookings)
    $ends = @ends
    $best = $j = 0
    for $s in $starts:
        if $s @before $ends[$j]:
            $best += 1
        else:
            $j += 1
    return @answer
""",
    slots={"ends": "sorted($p[1] for $p in bookings)", "before": "<", "answer": ANSWER},
    faults={
        INCLUSIVE: {"before": "<="},
        "unsorted": {"ends": "[$p[1] for $p in bookings]"},
        "off_by_one": OFF_BY_ONE,
        "last_value": {"answer": "$j"},
    },
)

BISECT = Algorithm(
    text=f"""from bisect import @side

{HEAD}
    $starts = sorted($s for $s, $e in @source)
    $ends = sorted($e for $s, $e in @source)
    $best = 0
    for $i, $t in enumerate($starts):
        $cur = $i @add - @side($ends, $t)
        $best = max($best, $cur)
    return $best
""",
    slots={"side": "bisect_right", "source": "bookings", "add": "+ 1"},
    faults={
        INCLUSIVE: {"side": "bisect_left"},
        "deduplicates": {"source": UNIQUE},
        "off_by_one": {"add": "«+ 2|+ 0»"},
    },
)

NEIGHBOURS = Algorithm(
    text=f"""{HEAD}
    if not bookings:
        return 0
    $rows = sorted(bookings)
    $cur = $best = 1
    for $i in range(1, len($rows)):
        if $rows[$i][0] < $rows[$i - 1][1]:
            $cur += 1
        else:
            $cur = 1
        {RAISE}
    return $best
""",
    always_wrong="neighbours_only",
)

MERGED = Algorithm(
    text=f"""{HEAD}
    $best = 0
    $t = 0
    for $s, $e in sorted(bookings):
        if $s >= $t:
            $best += 1
        $t = max($t, $e)
    return $best
""",
    always_wrong="merged_count",
)

CLUSTER = Algorithm(
    text=f"""{HEAD}
    $best = $cur = $t = 0
    for $s, $e in sorted(bookings):
        if $s < $t:
            $cur += 1
        else:
            $cur = 1
        $t = max($t, $e)
        {RAISE}
    return $best
""",
    always_wrong="largest_cluster",
)

ALGORITHMS: Mapping[str, Algorithm] = {
    "sweep": SWEEP,
    "sweep_lists": SWEEP_LISTS,
    "heap": HEAP,
    "rooms": ROOMS,
    "difference_array": DIFFERENCE_ARRAY,
    "difference_map": DIFFERENCE_MAP,
    "count_at_starts": COUNT_AT_STARTS,
    "count_comprehension": COUNT_COMPREHENSION,
    "two_pointers": TWO_POINTERS,
    "freed_places": FREED_PLACES,
    "bisect": BISECT,
    "neighbours": NEIGHBOURS,
    "merged": MERGED,
    "cluster": CLUSTER,
}
"""Every template by name."""
