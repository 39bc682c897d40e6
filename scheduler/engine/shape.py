"""What one ask needs from one node, in one concrete form: the question that filters and scores answer.

Two jobs with equal shapes get equal answers, which is what makes answers worth remembering. How many nodes, how near
to each other and whether the job may enter headroom are not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.vocabulary import COMPUTE_UNITS, AskForm, Form, Interconnect
from scheduler.engine.types import Ask, JobView

FORMS: Final = (Form.CONTAINER, Form.BLOCK, Form.WHOLE)
FORMS_OF: Final[dict[AskForm, tuple[Form, ...]]] = {
    AskForm.CONTAINER: (Form.CONTAINER,),
    AskForm.BLOCK: (Form.BLOCK,),
    AskForm.WHOLE: (Form.WHOLE,),
    AskForm.AUTO: FORMS,
}
INTERCONNECT_RANK: Final[dict[Interconnect, int]] = {Interconnect.ANY: 0, Interconnect.PCIE: 1, Interconnect.NVLINK: 2}


@dataclass(frozen=True, slots=True)
class Shape:
    """`memory_mib` 0 in a container means full cards; in the other forms it is a lower bound on each card."""

    form: Form
    cards: int
    memory_mib: int
    compute_milli: int
    model: str
    cpu_milli: int
    host_memory_mib: int
    interconnect: int
    labels: frozenset[str]
    simulated: bool
    hardware: str = ""  # the code of the class that the node must be of; "" = any
    zones: frozenset[int] = frozenset()  # ids, one of which the node must be in; empty = any
    gang: bool = False  # one card on each of several nodes

    @property
    def full_cards(self) -> bool:
        """Only cards without any tenant will do."""
        return self.form is not Form.CONTAINER or self.memory_mib == 0

    @property
    def linked(self) -> bool:
        """The cards must be able to talk to others: one that is only for work on itself (CardView.alone) is as held."""
        return self.gang or self.cards > 1 or self.form is not Form.CONTAINER

    @property
    def cards_of_size(self) -> int:
        """How many cards must have `memory_mib`; a whole machine asked for by memory alone needs one."""
        if self.form is Form.WHOLE and self.memory_mib > 0:
            return max(self.cards, 1)
        return self.cards

    @property
    def compute_possible(self) -> bool:
        return self.form is not Form.CONTAINER or self.compute_milli <= COMPUTE_UNITS


def shapes_of(job: JobView, ask: Ask) -> tuple[Shape, ...]:
    """One shape for each form that the ask accepts."""
    return tuple(
        Shape(
            form=form,
            cards=ask.cards_per_node,
            memory_mib=ask.memory_mib,
            compute_milli=ask.compute_milli,
            model=ask.model,
            cpu_milli=job.cpu_milli,
            host_memory_mib=job.host_memory_mib,
            interconnect=INTERCONNECT_RANK[job.interconnect],
            labels=job.labels,
            simulated=job.simulated,
            hardware=job.like.hardware if job.like else "",
            zones=job.zones,
            gang=ask.nodes > 1 and ask.cards_per_node == 1,
        )
        for form in FORMS_OF[ask.form]
    )
