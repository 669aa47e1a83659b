"""Who holds the task, and who came after whom: by the actors' answers, whatever marks Redis and the item have."""

from shared.queue import Claim
from tests.explorer.promises import Promises
from tests.explorer.scenario import ENDED, Holders, World


class Holding(Promises):
    """Keeps a world's Holders."""

    def _held(self, world: World, actor: int, child: int) -> Holders:
        """After this actor's answer."""
        holders, before, after = world.holders, self._nodes[world.places[actor]].replay, self._nodes[child].replay
        if after.hold is None or self._nodes[child].call is None:
            return holders if before.hold is None else self._held_no_more(world, actor)
        if before.hold is None or before.hold.token != after.hold.token:
            holders = _latest(without(holders, actor), actor)
            if (
                isinstance(self._nodes[child].answer, Claim)
                and holders.is_back
                and self._is_over(world, after.hold.generation)
            ):
                holders = holders._replace(warned=holders.warned | 1 << actor)
        return holders

    def _held_no_more(self, world: World, actor: int) -> Holders:
        """After an actor has let it go, unless a write of it may still land."""
        return world.holders if self._is_late(world, actor) else without(world.holders, actor)

    def _wrote(self, world: World, actor: int, place: int) -> World:
        """After a write by which this actor has what it holds noted in the item: whoever held it before is deposed."""
        hold, holders = self._nodes[place].replay.hold, world.holders
        if hold is None or actor not in holders.order:
            return world
        if self._nodes[place].method == "take_over" and place != world.late_write:
            holders = _latest(holders, actor)
        earlier = holders.order[: holders.order.index(actor)]
        bits = sum(1 << other for other in earlier if self._generation_of(world, other) == hold.generation)
        return world._replace(holders=holders._replace(deposed=holders.deposed | bits))

    def _generation_of(self, world: World, actor: int) -> int | None:
        """Of what this actor holds, or what its late write is about."""
        place = world.late_write if self._is_late(world, actor) else world.places[actor]
        hold = None if place is None or place == ENDED else self._nodes[place].replay.hold
        return hold.generation if hold else None

    def _is_late(self, world: World, actor: int) -> bool:
        """Whether a write of it may still land."""
        return world.late_write is not None and self._nodes[world.late_write].actor == actor

    def _is_over(self, world: World, generation: int) -> bool:
        item = self._item(world.store)
        return item is not None and not item.is_pending(generation)


def _latest(holders: Holders, actor: int) -> Holders:
    """This actor holds it, after all others."""
    order = (*(other for other in holders.order if other != actor), actor)
    return holders._replace(order=order, deposed=holders.deposed & ~(1 << actor))


def without(holders: Holders, actor: int) -> Holders:
    """This actor holds nothing."""
    order, others = tuple(other for other in holders.order if other != actor), ~(1 << actor)
    deposed, excused, warned = (bits & others for bits in (holders.deposed, holders.excused, holders.warned))
    return Holders(order, deposed, excused, warned, holders.is_back, holders.unheard)
