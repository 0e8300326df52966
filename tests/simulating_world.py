"""What tests of simulations share."""

from budgets import services
from budgets.models import ChangeSet
from tests.pages_day import NOW, Day


def propose(day: Day, petrel: int, auk: int) -> ChangeSet:
    """Propose shares for the two projects of science on the played day."""
    place = day.place
    draft = services.draft_change_set(
        parent=place.tree["orlo/science"],
        shares={place.petrel: petrel, place.auk: auk},
        reason="why",
        author=place.user,
        base_version=1,
        effective_at=NOW,
        now=NOW,
    )
    return services.propose(change_set=draft, now=NOW)
