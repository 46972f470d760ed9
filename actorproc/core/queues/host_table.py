"""Hosts as the core sees them: labels and resources that they offer, and what steps in workers' hands take of these.

A step with a demand goes to a worker of a host that has all its labels and so much of each resource free. Amounts are
taken when it is handed out, and given back when it leaves its worker's hands, in whichever way. Amounts are counted in
thousandths: sums of fractions must come out even. A host may be kept for a procedure whose step runs there alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from actorproc.model.placement import offer_in_words

__all__ = ["ANY_HOST", "Demand", "Host", "HostTable", "demand_of", "demand_of_lone"]

_PARTS = 1000
_MANY_DEMANDS = 64
"""Demands that are remembered at least, before those for which nothing waits are forgotten."""


class Demand(msgspec.Struct, frozen=True, gc=False):
    """Labels and resources that a step asks of the host that runs it."""

    key: str
    """Names it; equal for equal demands."""
    labels: frozenset[str]
    needs: tuple[tuple[str, int], ...] = ()
    """Thousandths of each resource."""
    words: str = ""
    code: str = ""
    """The type whose code the host is to have; empty: all hosts have it."""
    alone: str = ""
    """The procedure whose step is to run alone on its host; empty: others may run beside it."""


ANY_HOST = Demand("", frozenset())
"""The demand that each host meets."""


class Host(msgspec.Struct):
    """One host that is there."""

    name: str
    labels: frozenset[str]
    total: dict[str, int]
    """Thousandths of each resource."""
    free: dict[str, int]
    draining: bool = False
    """Its workers get no further step."""
    other_code: frozenset[str] = frozenset()
    """Types of which it has other code than the manager."""
    kept_for: str = ""
    """The procedure that is to have it for itself; empty: it is for all."""

    def offers(self, demand: Demand) -> bool:
        """It could run such a step, if nothing else ran there."""
        return demand.code not in self.other_code and self.would_offer(demand)

    def would_offer(self, demand: Demand) -> bool:
        """As `offers`, whatever code it has."""
        return demand.labels <= self.labels and all(self.total.get(name, 0) >= need for name, need in demand.needs)

    def has_free(self, demand: Demand) -> bool:
        """It has the labels, and the resources are free now."""
        if self.kept_for != demand.alone or demand.code in self.other_code:
            return False
        return demand.labels <= self.labels and all(self.free.get(name, 0) >= need for name, need in demand.needs)


def demand_of(on: Sequence[str], resources: Mapping[str, float], code: str = "") -> Demand | None:
    """The demand of a step with these limits; None: any host will do.

    `code` is its type where not all hosts have the code of that.
    """
    if not on and not resources and not code:
        return None
    needs = tuple((name, round(resources[name] * _PARTS)) for name in sorted(resources))
    key = ",".join(on) + "".join(f"|{name}={need}" for name, need in needs)
    words = offer_in_words(on, resources)
    if code:
        key += f"#{code}"
        words += f"{' and ' if words else ''}the code of {code.rpartition('.')[2]}"
    return Demand(key, frozenset(on), needs, words, code)


def demand_of_lone(demand: Demand | None, procedure: str) -> Demand:
    """The demand of a step that is to run alone on its host, beside what its limits ask for."""
    if demand is None:
        return Demand(f"!{procedure}", frozenset(), alone=procedure)
    return msgspec.structs.replace(demand, key=f"{demand.key}!{procedure}", alone=procedure)


class HostTable:
    """All hosts. Nothing here is stored."""

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.changes = 0
        """Changes after which a step may go on that found no host."""
        self.differ = False
        """Some hosts offer something, and some nothing: steps without a demand leave the first ones to others."""
        self.unoffered: dict[str, tuple[str, str, int]] = {}
        """By key of a demand that no host offers: the demand in words, the procedure that asked first, and the number
        of hosts that lack nothing but the code."""
        self.lone: dict[str, Demand] = {}
        """Demands of steps that are to run alone, by key: they wait, or run."""
        self.kept: dict[str, str] = {}
        """Hosts that are kept for such procedures, by procedure."""
        self._demands: dict[str, Demand] = {}
        """Demands by key, of which something may wait."""
        self._blocked: dict[str, int] = {}
        """By key: the number of `changes` with which no host had room."""

    # ------------------------------------------------------------ coming and going
    def join(
        self, name: str, labels: Sequence[str], resources: Mapping[str, float], other_code: Sequence[str] = ()
    ) -> None:
        """A host is there, or offers something else now; what steps took of it stays taken."""
        known = self.hosts.get(name)
        taken = {} if known is None else {key: known.total[key] - known.free[key] for key in known.total}
        total = {key: round(amount * _PARTS) for key, amount in resources.items()}
        free = {key: amount - taken.get(key, 0) for key, amount in total.items()}
        host = Host(name, frozenset(labels), total, free, draining=known is not None and known.draining)
        host.kept_for = "" if known is None else known.kept_for
        host.other_code = frozenset(other_code)
        self.hosts[name] = host
        self._changed()

    def drain(self, name: str) -> None:
        """A host's workers get no further step; a host that is not known yet joins without an offer."""
        if name not in self.hosts:
            self.join(name, (), {})
        self.hosts[name].draining = True
        self._changed()

    def leave(self, name: str) -> None:
        """A host is gone."""
        host = self.hosts.pop(name, None)
        if host is not None:
            self.kept.pop(host.kept_for, None)
        self._changed()

    def adopt(self, before: HostTable) -> None:
        """Take over which hosts there are from the memory before; nothing is taken of them yet."""
        for host in before.hosts.values():
            total = dict(host.total)
            self.hosts[host.name] = Host(
                host.name, host.labels, total, dict(total), host.draining, other_code=host.other_code
            )
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        offering = [bool(host.labels or host.total) for host in self.hosts.values()]
        self.differ = any(offering) and not all(offering)
        for key in [key for key in self.unoffered if self.is_offered(self._demands[key])]:
            del self.unoffered[key]

    @property
    def divided(self) -> frozenset[str]:
        """Types of which not all hosts have the code that the manager has."""
        return frozenset().union(*(host.other_code for host in self.hosts.values()))

    @property
    def has_none(self) -> bool:
        """The manager's machine runs no steps, and no other one is there."""
        return len(self.hosts) == 1 and self.is_draining("")

    def is_draining(self, name: str) -> bool:
        """This host's workers get no further step."""
        host = self.hosts.get(name)
        return host is not None and host.draining

    # ------------------------------------------------------------ hosts for one procedure alone
    def keep(self, name: str, procedure: str) -> None:
        """Keep a host for a procedure: no step of another one is handed to its workers."""
        host = self.hosts.get(name)
        if host is not None and not host.kept_for:
            host.kept_for = procedure
            self.kept[procedure] = name
            self.changes += 1

    def release(self, procedure: str) -> None:
        """A procedure needs no host for itself any more."""
        host = self.hosts.get(self.kept.pop(procedure, "\0"))
        if host is not None:
            host.kept_for = ""
            self.changes += 1

    def is_kept_from(self, name: str, procedure: str) -> bool:
        """True if this host is kept for another procedure."""
        host = self.hosts.get(name)
        return host is not None and host.kept_for not in {"", procedure}

    # ------------------------------------------------------------ demands
    def note(self, demand: Demand, procedure: str) -> bool:
        """Note that a step with this demand is to run; True when no host offers it, for the first time."""
        if demand.key not in self._demands:
            self._demands[demand.key] = demand
        if demand.key in self.unoffered or self.is_offered(demand):
            return False
        self.unoffered[demand.key] = (demand.words, procedure, self._with_other_code(demand))
        return True

    def note_again(self, key: str, procedure: str) -> bool:
        """The same of a demand that is known by this key."""
        demand = self._demands.get(key)
        return demand is not None and self.note(demand, procedure)

    def _with_other_code(self, demand: Demand) -> int:
        """Number of hosts that stay and offer what is asked, but have other code."""
        if not demand.code:
            return 0
        found = [host for host in self.hosts.values() if not host.draining and host.would_offer(demand)]
        return sum(demand.code in host.other_code for host in found)

    def forget_idle(self, wanted: set[str]) -> None:
        """Forget demands, when there are many, but those with these keys."""
        if len(self._demands) > _MANY_DEMANDS:
            for key in [key for key in self._demands if key not in wanted and key not in self.unoffered]:
                del self._demands[key]
                self._blocked.pop(key, None)

    def is_offered(self, demand: Demand) -> bool:
        """Some host that stays could run such a step, if nothing else ran there."""
        return any(not host.draining and host.offers(demand) for host in self.hosts.values())

    def is_blocked(self, key: str) -> bool:
        """True if no host has room for the demand of this key; worker or not."""
        if self._blocked.get(key) == self.changes:
            return True
        demand = self._demands.get(key)
        if demand is None or any(not host.draining and host.has_free(demand) for host in self.hosts.values()):
            return False
        self._blocked[key] = self.changes
        return True

    def has_room(self, name: str, demand: Demand) -> bool:
        """True if this host has the labels, and the resources are free."""
        host = self.hosts.get(name)
        return host is not None and not host.draining and host.has_free(demand)

    def offers(self, name: str, demand: Demand) -> bool:
        """True if this host could run such a step, if nothing else ran there."""
        host = self.hosts.get(name)
        return host is not None and host.offers(demand)

    def is_plain(self, name: str) -> bool:
        """True if this host offers nothing that others do not."""
        host = self.hosts.get(name)
        return host is None or not (host.labels or host.total)

    def best_for(self, demand: Demand) -> str | None:
        """The host with most of the resources free, of those that could run such steps; None: there is none."""
        if demand.alone:
            return self.kept.get(demand.alone)
        offering = [host for host in self.hosts.values() if not host.draining and host.offers(demand)]
        if not offering:
            return None
        names = [name for name, _ in demand.needs]
        return max(offering, key=lambda host: [host.free.get(name, 0) for name in names]).name

    def why(self, demand: Demand) -> str | None:
        """The sentence about what keeps a step with this demand waiting; None: only a worker."""
        others = self._with_other_code(demand)
        have = f"{others} host{'' if others == 1 else 's'} ha{'s' if others == 1 else 've'} other code"
        if not self.is_offered(demand):
            return f"for a host with {demand.words}" + (f" ({have})" if others else "; none that is connected has that")
        if not self.is_blocked(demand.key):
            if not others:
                return None
            count = sum(not host.draining and host.offers(demand) for host in self.hosts.values())
            return f"for a worker on {count} host{'' if count == 1 else 's'} with {demand.words} ({have})"
        hosts = [host for host in self.hosts.values() if host.offers(demand)]
        parts = []
        for name, _ in demand.needs:
            total, free = sum(host.total[name] for host in hosts), sum(host.free[name] for host in hosts)
            parts.append(f"{(total - free) / _PARTS:g} of {total / _PARTS:g} {name} are taken")
        return f"for a host with {demand.words}: {', '.join(parts)}"

    # ------------------------------------------------------------ taking
    def take(self, name: str, demand: Demand) -> None:
        """A step with this demand was handed to a worker of this host."""
        host = self.hosts.get(name)
        if host is not None:
            for key, need in demand.needs:
                host.free[key] = host.free.get(key, 0) - need
            if demand.alone:
                self.lone[demand.key] = demand
                self.keep(name, demand.alone)

    def give_back(self, name: str, demand: Demand) -> None:
        """A step with this demand has left its worker's hands."""
        if demand.alone:
            self.lone.pop(demand.key, None)
            self.release(demand.alone)
        host = self.hosts.get(name)
        if host is not None and demand.needs:
            for key, need in demand.needs:
                if key in host.total:
                    host.free[key] = min(host.total[key], host.free[key] + need)
                else:
                    host.free.pop(key, None)
            self.changes += 1
