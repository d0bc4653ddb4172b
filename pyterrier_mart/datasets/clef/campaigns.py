"""The topics of the CLEF ad-hoc track, by the campaigns that they were made for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["CAMPAIGNS", "listed", "misfit", "others", "ranges"]

#: First and last topic of each campaign.
CAMPAIGNS: Mapping[str, tuple[int, int]] = {
    "2000": (1, 40),
    "2001": (41, 90),
    "2002": (91, 140),
    "2003": (141, 200),
    "2004": (201, 250),
    "2005": (251, 300),
    "2006": (301, 350),
    "2007": (401, 450),
    "2008": (451, 500),  # of The European Library
    "2008 in Persian": (551, 600),
    "2009 in Persian": (601, 650),
    "2009": (701, 750),
}
_FEWEST = 40  # topics of a campaign; fewer may be a selection
_LONGEST = 50  # characters of a list of topics: it stays on a line


def misfit(numbers: Iterable[int]) -> str:
    """Returns why a file's topics cannot be those of campaigns, or "".

    FIRE's topics have the numbers 26 to 75, 76 to 125 and so on, TREC's 51 to 100: a whole set of successive numbers
    that begins within one campaign and ends within another one is not CLEF's.
    """
    known = set(numbers)
    first, last = min(known, default=0), max(known, default=0)
    begun = next((year for year, (start, end) in CAMPAIGNS.items() if start < first <= end), None)
    ended = next((year for year, (start, end) in CAMPAIGNS.items() if start <= last < end), None)
    if len(known) < _FEWEST or last - first >= len(known) or not begun or not ended or begun == ended:
        return ""
    return (
        f"topics {first} to {last} begin within those of CLEF {begun} and end within those of {ended}, as FIRE's and "
        "TREC's do; if they are CLEF's, make a file of each campaign"
    )


def others(numbers: Iterable[int]) -> list[int]:
    """Returns the numbers of topics that are of no campaign, sorted."""
    return sorted(n for n in set(numbers) if not any(first <= n <= last for first, last in CAMPAIGNS.values()))


def listed(qids: Iterable[str]) -> str:
    """Returns how many topics there are and which, for messages."""
    ordered = sorted(map(int, qids))
    return f"{len(ordered)} {'topic' if len(ordered) == 1 else 'topics'} ({ranges(ordered)})"


def ranges(numbers: Iterable[int]) -> str:
    """Writes sorted numbers as ranges: 41-90, 141-200; the first of them, if there are too many for a line."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    text = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)
    return text if len(text) <= _LONGEST else text[: text.rindex(",", 0, _LONGEST)] + ", ..."
