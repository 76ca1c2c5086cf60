"""Stop strings in streamed text (Knuth, Morris, Pratt: one automaton per string)."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Finds the first stop string to complete, wherever the text is cut, and holds back no more than needed.

    Only text that may be the beginning of a stop string is held.  The string that completes first wins; of several
    that complete at the same character the longest does.  `keeps_stop` leaves the stop string in the text.
    """

    def __init__(self, stops: Sequence[str], keeps_stop: bool = False) -> None:
        self._stops = tuple(stops)
        self._failures = [_failure_table(stop) for stop in self._stops]
        self._first_characters = {stop[0] for stop in self._stops}
        self._matched = [0] * len(self._stops)
        self._held = ""
        self._keeps_stop = keeps_stop

    def push(self, text: str, *, is_armed: bool = True) -> tuple[str, str | None]:
        """Text that can be given out now, and the stop string that ended it, if one did.

        While not `is_armed`, text is followed but no match counts: a later one must end in armed text.  After a match
        the matcher is done.
        """
        if not self._held and self._first_characters.isdisjoint(text):
            return text, None
        for position, character in enumerate(text):
            completed = self._advance(character)
            if completed is not None and is_armed:
                seen = self._held + text[: position + 1]
                self._held = ""
                return (seen if self._keeps_stop else seen[: len(seen) - len(completed)]), completed
        seen = self._held + text
        border = len(seen) - max(self._matched)
        self._held = seen[border:]
        return seen[:border], None

    def flush(self) -> str:
        """The text held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str) -> str | None:
        """Feed one character to every automaton; the longest stop string that it completes."""
        longest: str | None = None
        for i, stop in enumerate(self._stops):
            failure, matched = self._failures[i], self._matched[i]
            while matched and stop[matched] != character:
                matched = failure[matched - 1]
            if stop[matched] == character:
                matched += 1
            if matched == len(stop):
                if longest is None or len(stop) > len(longest):
                    longest = stop
                matched = failure[matched - 1]
            self._matched[i] = matched
        return longest


def _failure_table(stop: str) -> list[int]:
    """For each prefix, the length of its longest proper suffix that is also a prefix."""
    table = [0] * len(stop)
    matched = 0
    for i in range(1, len(stop)):
        while matched and stop[matched] != stop[i]:
            matched = table[matched - 1]
        if stop[matched] == stop[i]:
            matched += 1
        table[i] = matched
    return table
