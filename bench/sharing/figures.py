"""Figures of bench/run share: one row each, judged by the median of its repetitions, and refused where
a value is better than theory allows."""
import statistics
import sys

import bars

BASELINES = ("fifo", "bare")
AT_MOST_ALL, AT_LEAST_NONE = ("<=", 100), (">=", 0)
SLACK = 0.1   # in the unit of the figure: what clocks and rounding make of a value at its limit


class Figure:
    """One row. Values by repetition; the figure is their median, and it is judged without
    allowance. 'beside' are the same values of fifo and bare. 'best' is what theory allows: ("<=", x)
    says that no right measurement is above x. A value beyond it shows that the measurement is broken."""

    def __init__(self, key, label, bar=None, unit="%", always=False, best=None, slack=SLACK):
        self.key = key
        self.always = always   # judged on a disturbed machine, too
        self.label = label
        self.bar = bar
        self.ci_bar = bars.ci_bar(key, bar)
        self.unit = unit
        self.best = best
        self.slack = slack
        self.table_disturbed = False   # whether others had the cores in a trial of the same table
        self.values = []
        self.limits = []       # what theory allowed in each repetition
        self.repetitions = []  # for each: whether others had the cores; empty if not known
        self.beside = {name: [] for name in BASELINES}

    def add(self, value, disturbed=None, limit=None):
        """limit: in place of the number in 'best', where it follows from the repetition itself."""
        self.values.append(value)
        if self.best:
            self.limits.append(self.best[1] if limit is None else limit)
        if disturbed is not None:
            self.repetitions.append(disturbed)

    @property
    def value(self):
        return statistics.median(self.values)

    @property
    def disturbed(self):
        """The median of five stands as long as three repetitions were ours alone."""
        if self.always:
            return False
        if self.repetitions:
            return 2 * sum(self.repetitions) >= len(self.repetitions)
        return self.table_disturbed

    def beyond_theory(self):
        """For each repetition whether its value is better than theory allows."""
        sign = 1 if self.best and self.best[0] == "<=" else -1
        return [sign * (value - limit) > self.slack
                for value, limit in zip(self.values, self.limits)]

    def verdict(self):
        known = self.repetitions or [self.disturbed] * len(self.values)
        beyond = [disturbed for beyond, disturbed in zip(self.beyond_theory(), known) if beyond]
        if beyond and not all(beyond):
            return "REFUSED"   # and no other machine is to blame
        if not self.bar:
            return "-"
        if bars.meets(self.value, self.bar) and not beyond:
            return "ok"
        if beyond or self.disturbed:
            return "DISTURBED"
        return "MISS" if bars.meets(self.value, self.ci_bar) else "FAIL"

    def row(self):
        spread = f"{min(self.values):.2f}-{max(self.values):.2f}" if len(self.values) > 1 else ""
        best = f"{statistics.median(self.limits):.2f}" if self.limits else ""
        bar = bars.show(self.bar, self.ci_bar)
        beside = [f"{statistics.median(v):.2f}" if v else "" for v in self.beside.values()]
        return [self.label, f"{self.value:.2f} {self.unit}", spread, best, *beside, bar,
                self.verdict()]


def print_rows(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    sys.stdout.flush()


def print_table(title, figures):
    print(f"\n{title}")
    print_rows([["", "divvy", "min-max", "at best", "fifo", "bare", "goal (CI bar)", ""]]
               + [figure.row() for figure in figures])


def median_and_spread(values, digits=2):
    return [f"{statistics.median(values):.{digits}f}",
            f"{min(values):.{digits}f}-{max(values):.{digits}f}"]


def parts(times):
    """Each by the sum of all."""
    total = sum(times)
    return [t / total if total else 0.0 for t in times]
