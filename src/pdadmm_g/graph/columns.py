r"""What the columns of a table mean, and the features that are made of them.

Each column has a role, which is guessed from its values unless the user says it. What was learned of a column is kept
with the model, as plain data, and makes the same features of other rows.

``number`` and ``date``
    The rank among the values of the table as a normal score, :math:`\Phi^{-1}(F(v))`, so that neither units nor heavy
    tails matter; where numbers are predicted, which may follow a number itself and not its rank, of a ``number`` also
    its standardized value, at most 4 from the mean; of a date also, as far as they differ, month, weekday and hour,
    each as a point on a circle.
``count``
    The number itself: columns of which most entries are zero, as in a bag of words.
``boolean``
    1 for yes, 0 for no.
``category``
    A column of 0 and 1 for each value; rare values, and values that are new later, share one.
``text``
    How often it has each of the words that most rows have, at least two, each row scaled to length 1. Numbers are no
    words: those of tickets would crowd them out.
``ignore``
    Nothing.

A gap is the middle of the table, 0; where there are enough of them, a column says where.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.special import ndtri

from ..config import ROLES, Role
from ..errors import InputError
from .graph import listed, order

Array = NDArray[Any]
#: Words for yes and for no.
BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "ja"), 1.0)
BOOLEANS |= dict.fromkeys(("false", "f", "no", "n", "nein"), 0.0)
#: Words that people write for nothing, as pandas reads them.
NOTHING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
#: As many quantiles are kept of a number.
QUANTILES = 256
#: A standardized value is not farther from the mean.
FARTHEST = 4.0
#: As many values of a category have a column of their own; a rarer one than this share of all rows has none.
MOST_VALUES, RARE = 50, 0.002
#: As many words of a text have a column.
WORDS = 128
#: A word begins with a letter and has two characters or more.
WORD = r"(?u)\b[^\W\d]\w+\b"
#: With this share of gaps or more, a column says where they are.
GAPS = 0.005
#: So many columns of whole numbers, most of whose entries are zero, are counts.
COUNTS = 20
#: With fewer rows than this, different values in all of them do not make a column one of ids or names.
FEW = 20
#: This share of the entries of a column of numbers or dates may be other words, such as "unknown": they are gaps.
ODD = 0.1

Part = Literal["month", "weekday", "hour"]
#: Parts of a date: the seconds in which each comes round again; months are counted.
CYCLES: dict[Part, float] = {"month": 12.0, "weekday": 7 * 86400.0, "hour": 86400.0}
#: 31.12.2020, 2020-12-31 17:00, 31 December 2020, Dec 31, 2020.
_MONTH = r"(jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = rf"\d{{1,4}}([-/.])\d{{1,2}}\1\d{{1,4}}(\D.*)?$|(\d{{1,2}}[ -])?{_MONTH}[ -]\d{{1,4}}(\D.*)?$"
#: What may stand before a number, but for its sign, and behind it.
_CURRENCY = "[$€£¥]|EUR|USD|GBP|CHF"
_UNITS = rf"^([-+]?)(?:{_CURRENCY})\s*|\s*(?:%|{_CURRENCY})$"
_IDS = re.compile(r"(^|_|\b)(id|uuid|guid|key|index|nr)$|[a-z]I[dD]$", re.IGNORECASE)


class Column(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one column of a table becomes features."""

    name: str
    role: Role
    #: Why it is left out.
    why: str = ""
    #: Of a number or a date: evenly spaced quantiles of its values.
    quantiles: list[float] = []
    #: Of a number whose standardized value is a feature, too: by which it is standardized.
    mean: float | None = None
    deviation: float = 1.0
    #: Of a category: the values that have a column of their own.
    values: list[str] = []
    #: Of a category: do all other values share a column?
    others: bool = False
    #: Of text with numbers such as 1,234: the mark that stands between thousands.
    thousands: str = ""
    #: Of a text: the words that have a column.
    words: list[str] = []
    #: Of a date: the parts that differ, and whether the day comes before the month.
    parts: list[Part] = []
    day_first: bool = False
    #: Does a column say where there is no value?
    gaps: bool = False

    def features(self, column: pd.Series) -> list[tuple[str, Array]]:
        """The features of the rows of a column of this kind, each with what it is called."""
        name = self.name
        if self.role == "ignore":
            return []
        if self.role == "text":
            return [*zip([f"{name} word {word}" for word in self.words], counted(column, self.words).T, strict=True)]
        if self.role == "category":
            text = words_of(column)
            places, missing = pd.Index(self.values, dtype=object).get_indexer(text), text.isna().to_numpy()
            found = [(f"{name}={value}", places == place) for place, value in enumerate(self.values)]
            found += [(f"{name}=other", (places < 0) & ~missing)] * self.others
        else:
            numbers = self.numbers(column)
            missing = np.isnan(numbers)
            found = [(name, normal_scores(numbers, self.quantiles) if self.role in ("number", "date") else numbers)]
            if self.mean is not None:
                found += [(f"{name} value", ((numbers - self.mean) / self.deviation).clip(-FARTHEST, FARTHEST))]
            for part in self.parts:
                angle = angles(numbers, part)
                found += [(f"{name} {part} sin", np.sin(angle)), (f"{name} {part} cos", np.cos(angle))]
            found = [(each, np.where(missing, 0, values)) for each, values in found]
        return found + [(f"{name} missing", missing)] * self.gaps

    def names(self) -> list[str]:
        """What the features are called."""
        return [name for name, _ in self.features(pd.Series([], dtype=object))]

    def numbers(self, column: pd.Series) -> Array:
        """The numbers of a column of this kind, the seconds of one of dates; NaN for all else."""
        if self.role == "date":
            return seconds_of(column, self.day_first)
        return numbers_of(column, thousands=self.thousands)

    def with_value(self, column: pd.Series) -> Column:
        """The same, and if it is of numbers that differ, their standardized values are features, too."""
        numbers = self.numbers(column) if self.role == "number" else np.empty(0)
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers) or not (deviation := float(numbers.std())) or not np.isfinite(deviation):
            return self
        return replace(self, mean=float(numbers.mean()), deviation=deviation)


# ------------------------------------------------------------------------------------------------------------- roles


def understood(
    table: pd.DataFrame, roles: Mapping[str, str] | None = None, culprit: str = "nodes"
) -> tuple[Column, ...]:
    """What each column of a table of features means: as the user says, or as its values look."""
    said = {str(name): (role, "") for name, role in (roles or {}).items()}
    for name, (role, _) in said.items():
        if name not in map(str, table):
            raise InputError(f"{culprit}: columns names {name!r}, which is no feature; there are {listed(table)}")
        if role not in ROLES:
            raise InputError(f"columns: {name!r} cannot be {role!r}: it must be one of {', '.join(ROLES)}")
    counts = [name for name in table if str(name) not in said and _is_count(table[name])]
    if len(counts) >= COUNTS:
        said |= {str(name): ("count", "") for name in counts}
    return tuple(_learned(table[name], *(said.get(str(name)) or _guessed(table[name])), culprit) for name in table)


def _guessed(column: pd.Series) -> tuple[str, str]:
    """The role of a column and, where it is left out, why."""
    is_text = column.dtype.kind not in "biufM"
    known = (words_of(column) if is_text else column).dropna()
    distinct = known.nunique()
    if not distinct or (distinct == 1 and len(known) == len(column)):
        return "ignore", "the same in every row" if distinct else "empty"
    if column.dtype.kind == "M":
        return "date", ""
    if column.dtype.kind == "b" or (is_text and {*known.str.lower().unique()} <= BOOLEANS.keys()):
        return "boolean", ""
    every = distinct == len(column) > FEW
    numbers = numbers_of(known, booleans=False, thousands=thousands_of(known))
    if _mostly(numbers, known) and not (is_text and known.str.match(r"[-+]?0\d").any()):  # 01234 is a code
        numbers = numbers[~np.isnan(numbers)]
        if every and (numbers % 1 == 0).all() and (_IDS.search(str(column.name)) or np.ptp(numbers) == distinct - 1):
            return "ignore", "a number of its own in every row"
        return ("boolean" if {*np.unique(numbers)} <= {0.0, 1.0} else "number"), ""
    known = words_of(known)
    dates = known.str.match(_DATE, flags=re.IGNORECASE).to_numpy(dtype=bool)
    seconds = seconds_of(known, _day_first(known)) if dates.mean() > 0.5 else np.full(len(known), np.nan)
    if dates.mean() > 1 - ODD and _mostly(seconds, known):
        return "date", ""
    several = known.str.count(r"\s+").mean() >= 2
    if distinct > max(0.5 * len(known), FEW):
        cures = [role for role, found in (("number", numbers), ("date", seconds)) if np.isnan(found).mean() <= 0.5]
        cure = f": columns={{{str(column.name)!r}: {cures[0]!r}}} reads what is one" if cures else ""
        return ("text", "") if several and not cure else ("ignore", f"nearly another text in every row{cure}")
    return ("text" if several and distinct > MOST_VALUES else "category"), ""


def _mostly(numbers: Array, known: pd.Series) -> bool:
    """Are all entries of a column numbers, but for a few words that are written where there is none?"""
    odd = np.isnan(numbers)
    return not odd.any() or bool(odd.mean() <= ODD and known[odd].nunique() <= 3)


def _is_count(column: pd.Series) -> bool:
    numbers = column.to_numpy() if column.dtype.kind in "iuf" else np.empty(0)
    return bool(len(numbers)) and bool(
        (numbers == 0).mean() > 0.5 and (numbers >= 0).all() and (numbers % 1 == 0).all()
    )


def _learned(column: pd.Series, role: Any, why: str, culprit: str) -> Column:
    """What features of a column with this role need to know of its values."""
    found = Column(name=str(column.name), role=role, why=why)
    if role == "ignore":
        return found
    if role == "text":
        return replace(found, words=frequent_words(column))
    if role == "category":
        text = words_of(column)
        counts = text.value_counts().sort_index().sort_values(ascending=False, kind="stable")
        often = counts.index[counts >= max(2, RARE * len(column))][:MOST_VALUES]
        found = replace(found, values=sorted(map(str, often)), others=len(often) < len(counts))
        missing = text.isna().to_numpy()
    else:
        is_date = role == "date"
        day_first, thousands = is_date and _day_first(words_of(column)), "" if is_date else thousands_of(column)
        found = replace(found, day_first=day_first, thousands=thousands)
        numbers = found.numbers(column)
        missing = np.isnan(numbers)
        odd = missing & column.notna().to_numpy()
        if odd.sum() > 0.5 * column.notna().sum():
            has = f"but row {odd.argmax()} (the first is 0) has {column.iloc[int(odd.argmax())]!r:.60}"
            rule = f"column {column.name!r} is to be of the kind {role}, {has}: set another in columns"
            raise InputError(f"{culprit}: {rule}")
        known = numbers[~missing]
        if role in ("number", "date") and len(known):
            quantiles = np.quantile(known, np.linspace(0, 1, min(QUANTILES, len(known)))).tolist()
            parts = [part for part in CYCLES if is_date and len(np.unique(angles(known, part).round(3))) > 2]
            found = replace(found, quantiles=quantiles, parts=parts)
    return replace(found, gaps=bool(len(column) and role != "count" and np.mean(missing) >= GAPS))


# ---------------------------------------------------------------------------------------------------------- features


def matrix_of(table: pd.DataFrame, columns: Sequence[Column]) -> tuple[Array, tuple[str, ...]]:
    """The features of the rows of a table, which has these columns in any order, and what they are called."""
    places = {str(name): name for name in table}
    order([*places], [column.name for column in columns if column.role != "ignore" or column.name in places])
    names = feature_names(columns)
    matrix = np.empty((len(table), len(names)), dtype=np.float32)
    own = (column.features(table[places[column.name]]) for column in columns if column.role != "ignore")
    for place, (_, values) in enumerate(chain.from_iterable(own)):
        matrix[:, place] = values
    return matrix, names


def feature_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """What the features of these columns are called, each otherwise."""
    found: dict[str, None] = {}
    for column in columns:
        for name in column.names():
            while name in found:  # a column 'age missing' beside the gaps of 'age'
                name += "'"
            found[name] = None
    return tuple(found)


def standardized(columns: Sequence[Column] | None) -> bool:
    """Were features made of these columns that stand for themselves, other than the counts of a bag of words?"""
    return any(column.role not in ("count", "ignore") for column in columns or ())


def normal_scores(numbers: Array, quantiles: Sequence[float]) -> Array:
    """The normal score of the rank of each number among the quantiles; equal ones have the middle of their ranks."""
    if not quantiles:
        return np.zeros(len(numbers))
    values, place = np.unique(quantiles, return_inverse=True)
    ranks = np.bincount(place, np.linspace(0, 1, len(place))) / np.bincount(place)
    least = 0.5 / len(place)
    scores: Array = ndtri(np.interp(numbers, values, ranks).clip(least, 1 - least))
    return scores


def numbers_of(column: pd.Series, *, booleans: bool = True, thousands: str = "") -> Array:
    """The numbers of a column, also as text, with a decimal comma, thousands apart or a unit; NaN for all else."""
    if column.dtype.kind in "biuf":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.where(np.isfinite(numbers), numbers, np.nan)
    places, words = pd.factorize(words_of(column))
    text = pd.Series(words, dtype=object)
    found = pd.to_numeric(text, errors="coerce")
    if thousands or found.isna().any():
        plain = text.str.replace(_UNITS, r"\1", regex=True)
        for mark in ",.":
            grouped = plain.str.match(_grouped(mark, sure=mark != thousands)).to_numpy(dtype=bool)
            plain = plain.mask(grouped, plain.str.replace(mark, "", regex=False))
        plain = pd.to_numeric(plain.str.replace(r"^([-+]?\d*),(\d+)$", r"\1.\2", regex=True), errors="coerce")
        found = plain if thousands else found.fillna(plain)
        found = found.fillna(text.str.lower().map(BOOLEANS)) if booleans else found
    numbers = np.append(found.to_numpy(dtype=np.float64, na_value=np.nan), np.nan)[places]
    return np.where(np.isfinite(numbers), numbers, np.nan)


def thousands_of(column: pd.Series) -> str:
    """The mark between thousands in a column of text: 1,234 may be either, 1,234.50 or 1,234,567 among them tells."""
    if column.dtype.kind in "biuf":
        return ""
    text = pd.Series(words_of(column).dropna().unique(), dtype=object).str.replace(_UNITS, r"\1", regex=True)
    for mark in ",.":
        if text.str.match(_grouped(mark, sure=True)).any():
            return mark
    commas = text[text.str.contains(",", regex=False)]
    return "," if len(commas) and commas.str.match(_grouped(",", sure=False)).all() else ""


def _grouped(mark: str, *, sure: bool) -> str:
    """A pattern of numbers with this mark between thousands; the ``sure`` ones cannot be fractions."""
    groups, point = rf"[-+]?[1-9]\d{{0,2}}(?:\{mark}\d{{3}})", {",": ".", ".": ","}[mark]
    return rf"(?:{groups}+\{point}\d+|{groups}{{2,}})$" if sure else rf"{groups}+(?:\{point}\d+)?$"


def seconds_of(column: pd.Series, day_first: bool = False) -> Array:
    """The times of a column in seconds since 1970; NaN where there is none."""
    if column.dtype.kind == "M":
        times = column.dt.tz_convert(None) if getattr(column.dt, "tz", None) is not None else column
    else:
        places, words = pd.factorize(words_of(column))
        text = pd.Series([*words, None], dtype=object)

        def parsed(*, first: bool) -> pd.Series:
            times = pd.to_datetime(text, errors="coerce", format="mixed", dayfirst=first, utc=True)
            return times.dt.tz_localize(None)

        times = parsed(first=False)
        if day_first:  # but where a year is first
            times = times.mask(text.str.match(r"\d{1,2}\D").to_numpy(dtype=bool, na_value=False), parsed(first=True))
        times = times.iloc[places]
    return ((times - pd.Timestamp(0)) / pd.Timedelta(seconds=1)).to_numpy(dtype=np.float64)


def _day_first(text: pd.Series) -> bool:
    """Are dates written 31.12.2020 or 31/12/2020, the day before the month?"""
    first = text.dropna().str.extract(r"^(\d{1,2})([/.-])\d{1,2}\2\d{2,4}")
    return bool((first[1] == ".").any() or (pd.to_numeric(first[0]) > 12).any())


def angles(seconds: Array, part: Part) -> Array:
    """How far a cycle has turned, as an angle."""
    if part == "month":
        seconds = pd.to_datetime(pd.Series(seconds), unit="s").dt.month.to_numpy(dtype=np.float64)
    return 2 * np.pi * (seconds % CYCLES[part]) / CYCLES[part]


def words_of(column: pd.Series, nothing: Collection[str] = NOTHING) -> pd.Series:
    """The values of a column as text without spaces around; missing where there is ``nothing``."""
    try:
        places, values = pd.factorize(column)
    except TypeError:  # lists and the like
        places, values = pd.factorize(column.where(column.isna(), column.astype(str)))
    words: list[str | None] = []
    for value in values:
        whole = isinstance(value, float | np.floating) and value == np.floor(value) and abs(value) < 1e15
        text = str(int(value)) if whole else str(value).strip()  # 12345.0 is 12345, as beside no gaps
        words.append(None if text in nothing else text)
    return pd.Series(np.array([*words, None], dtype=object)[places], index=column.index, dtype=object)


def frequent_words(column: pd.Series) -> list[str]:
    """The words that most of the texts have, at least two of them, whatever their order."""
    from sklearn.feature_extraction.text import CountVectorizer

    analyze = CountVectorizer(token_pattern=WORD).build_analyzer()
    rows = Counter(word for text in words_of(column).dropna() for word in {*analyze(text)})
    often = sorted((word for word, number in rows.items() if number > 1), key=lambda word: (-rows[word], word))
    return sorted(often[:WORDS])


def counted(column: pd.Series, words: Sequence[str]) -> Array:
    """How often each text has each of these words, each row of length 1."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import normalize

    if not words or not len(column):
        return np.empty((len(column), len(words)), dtype=np.float32)
    vectorizer = CountVectorizer(vocabulary=words, token_pattern=WORD, dtype=np.float32)
    found: Array = normalize(vectorizer.transform(words_of(column).fillna(""))).toarray()
    return found


# --------------------------------------------------------------------------------------------------------- sentences


def described(columns: Sequence[Column]) -> str:
    """The roles of the columns of a table, in one line."""
    parts = []
    for role in ROLES:
        names = [
            f"{column.name} ({column.why})" if column.why else column.name for column in columns if column.role == role
        ]
        many = {"boolean": "yes or no", "category": "categories"}.get(role, f"{role}s")
        if names and role == "ignore":
            parts.append(f"left out: {listed(names)}")
        elif names:
            parts.append(f"{len(names)} {many if names[1:] or role == 'boolean' else role} ({listed(names)})")
    return f"columns: {'; '.join(parts)}"
