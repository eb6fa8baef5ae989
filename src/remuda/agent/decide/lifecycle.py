"""
What a Pod's VM needs next: one total table, what is wanted x what is recorded x what is seen -> one action. Pure.

Every cell is written down. Each pass takes one step, then looks again; so each action must be safe to repeat and safe
to be killed in. What an action does, and in which order, is said at its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from remuda.agent.decide.recorded import State


class Wanted(StrEnum):
    """What the API server says about the Pod. Deletion is looked at before everything else."""

    UNREAD = "cannot be read"
    """It could not be asked, or has not been since we started. Nothing follows from that."""
    NEW = "is new here"
    """Alive, and without our finalizer."""
    LIVE = "is alive"
    ENDED = "has ended"
    """Its phase is terminal."""
    DELETING = "is being deleted"
    """Whatever else it is."""
    GONE = "is gone"
    """The server said so twice: it is in no list, and it was asked for by name. Another UID counts as gone."""


class Recorded(StrEnum):
    """What our own record says."""

    NOTHING = "there is no record"
    UNREADABLE = "the record cannot be read"
    CLONING = "its disk is being made"
    CLONED = "its disk is ready and has never booted"
    STARTED = "it was started"
    DELIVERING = "its job is being delivered"
    DELIVERED = "it was given its job"
    EXITED = "it is over"
    CLEARED = "it is over and cleaned up"
    REFUSED = "it was refused"


class Observed(StrEnum):
    """What the host shows under the VM's name."""

    ABSENT = "is not there"
    STOPPED = "is stopped"
    RUNNING = "runs"
    UNKNOWN = "cannot be seen"
    """The look failed or hung."""


class Action(StrEnum):
    """One step. Where it says "write", that is durable before what follows it."""

    WAIT = "wait"
    """Do nothing until the Pod can be read."""
    REST = "rest"
    """Do nothing until something changes: there is nothing left to do."""
    LOOK_AGAIN = "look again"
    """Do nothing before the VM was seen. Retried with back-off."""
    LEAVE = "leave"
    """What bears this name was not made by us. Touch nothing, say so."""
    LEAVE_UNREADABLE = "leave unreadable"
    """It may be ours, and nothing proves it. Touch nothing, name the file, say so."""
    HOLD = "hold"
    """Put our finalizer on the Pod, then look again at once; do not wait for a watch to tell."""
    CLONE = "clone"
    """Write CLONING; fetch the image and its golden if need be; clone; give it its size; write CLONED."""
    CLONE_AGAIN = "clone again"
    """A disk is there that may be half of one, and never booted: delete it. The next look clones."""
    START = "start"
    """Wait for a slot; make the mailbox; write STARTED; run. Whatever the run raises, there is no second one."""
    SERVE = "serve"
    """Adopt it if need be; wait for ready; poll dispatch; write DELIVERING; put the job in; write DELIVERED."""
    CHECK_DELIVERY = "check delivery"
    """Look into the mailbox: if a job is or was in it, write DELIVERED, else STARTED."""
    WATCH = "watch"
    """Adopt it if need be; take job.json out once it was read; watch for the exit. When it is over: as SETTLE."""
    SETTLE = "settle"
    """Work out the verdict from mailbox, log and record; write EXITED."""
    GIVE_UP = "give up"
    """It runs and we did not start it, so its disk is spent: write EXITED with that verdict."""
    REFUSE = "refuse"
    """Something that is not ours bears its name: write REFUSED with that verdict."""
    PUBLISH = "publish"
    """Write the verdict into the Pod's status, again and again until it is there."""
    FAIL_UNREADABLE = "fail unreadable"
    """Write Failed into the Pod's status: nobody knows whether its disk has booted, so it never will. Keep the file."""
    STOP = "stop"
    """Put a stop into the mailbox, give the guest its grace, then end the VM."""
    DELETE = "delete"
    """Delete VM, disk and mailbox. "Not there" is success."""
    CLEAR = "clear"
    """Remove what is left of the mailbox; write CLEARED."""
    RELEASE = "release"
    """Publish the verdict if the Pod lacks it, take our finalizer off, and delete the Pod (its UID, no grace)."""
    REAP = "reap"
    """Nobody wants it: leave it to ``garbage``, which stops and deletes it after its grace."""
    FORGET = "forget"
    """Remove the record: neither a Pod nor a VM is left."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do, and why."""

    action: Action
    why: str


_W, _R, _O, _A = Wanted, Recorded, Observed, Action
Row = tuple[Action, Action, Action, Action]

_COLUMNS: Final = (_O.ABSENT, _O.STOPPED, _O.RUNNING, _O.UNKNOWN)

_HOLD_IT: Final = (_A.HOLD,) * 4
_WAIT: Final = (_A.WAIT,) * 4
_REST: Final = (_A.REST,) * 4
_RELEASE: Final = (_A.RELEASE,) * 4
_PUBLISH: Final = (_A.PUBLISH,) * 4
_SETTLE: Final = (_A.SETTLE,) * 4
_LEAVE_UNREADABLE: Final = (_A.LEAVE_UNREADABLE,) * 4
_NOT_OURS: Final = (_A.REST, _A.LEAVE, _A.LEAVE, _A.REST)
_REMOVE: Final = (_A.CLEAR, _A.DELETE, _A.STOP, _A.LOOK_AGAIN)
_END: Final = (_A.SETTLE, _A.SETTLE, _A.STOP, _A.LOOK_AGAIN)
_ORPHAN: Final = (_A.FORGET, _A.REAP, _A.REAP, _A.LOOK_AGAIN)

# fmt: off
_TABLE: Final[dict[tuple[Wanted, Recorded], Row]] = {
    #                             not there            stopped              runs                 cannot be seen
    # The Pod cannot be read: what runs goes on, what ended is written down while the traces are fresh.
    (_W.UNREAD, _R.NOTHING):     _WAIT,
    (_W.UNREAD, _R.UNREADABLE):  _WAIT,
    (_W.UNREAD, _R.CLONING):     _WAIT,
    (_W.UNREAD, _R.CLONED):      _WAIT,
    (_W.UNREAD, _R.STARTED):    (_A.SETTLE,           _A.SETTLE,           _A.WAIT,             _A.WAIT),
    (_W.UNREAD, _R.DELIVERING): (_A.SETTLE,           _A.SETTLE,           _A.CHECK_DELIVERY,   _A.WAIT),
    (_W.UNREAD, _R.DELIVERED):  (_A.SETTLE,           _A.SETTLE,           _A.WATCH,            _A.WATCH),
    (_W.UNREAD, _R.EXITED):      _WAIT,
    (_W.UNREAD, _R.CLEARED):     _WAIT,
    (_W.UNREAD, _R.REFUSED):     _WAIT,

    # Our finalizer is not on it: before the host is touched, and again if somebody took it off.
    (_W.NEW, _R.NOTHING):        _HOLD_IT,
    (_W.NEW, _R.UNREADABLE):     _HOLD_IT,
    (_W.NEW, _R.CLONING):        _HOLD_IT,
    (_W.NEW, _R.CLONED):         _HOLD_IT,
    (_W.NEW, _R.STARTED):        _HOLD_IT,
    (_W.NEW, _R.DELIVERING):     _HOLD_IT,
    (_W.NEW, _R.DELIVERED):      _HOLD_IT,
    (_W.NEW, _R.EXITED):         _HOLD_IT,
    (_W.NEW, _R.CLEARED):        _HOLD_IT,
    (_W.NEW, _R.REFUSED):        _HOLD_IT,

    # It wants a VM: one disk, one boot, one job, one end.
    (_W.LIVE, _R.NOTHING):      (_A.CLONE,            _A.REFUSE,           _A.REFUSE,           _A.LOOK_AGAIN),
    (_W.LIVE, _R.UNREADABLE):   (_A.FAIL_UNREADABLE,  _A.FAIL_UNREADABLE,  _A.LEAVE_UNREADABLE, _A.LOOK_AGAIN),
    (_W.LIVE, _R.CLONING):      (_A.CLONE,            _A.CLONE_AGAIN,      _A.GIVE_UP,          _A.LOOK_AGAIN),
    (_W.LIVE, _R.CLONED):       (_A.CLONE,            _A.START,            _A.GIVE_UP,          _A.LOOK_AGAIN),
    (_W.LIVE, _R.STARTED):      (_A.SETTLE,           _A.SETTLE,           _A.SERVE,            _A.LOOK_AGAIN),
    (_W.LIVE, _R.DELIVERING):   (_A.SETTLE,           _A.SETTLE,           _A.CHECK_DELIVERY,   _A.LOOK_AGAIN),
    (_W.LIVE, _R.DELIVERED):    (_A.SETTLE,           _A.SETTLE,           _A.WATCH,            _A.WATCH),
    # A slot is free only when its VM is stopped; but a host that cannot be seen must not hide a verdict.
    (_W.LIVE, _R.EXITED):       (_A.PUBLISH,          _A.PUBLISH,          _A.STOP,             _A.PUBLISH),
    (_W.LIVE, _R.CLEARED):      (_A.PUBLISH,          _A.PUBLISH,          _A.STOP,             _A.PUBLISH),
    (_W.LIVE, _R.REFUSED):       _PUBLISH,

    # Its end is in its status. Clean up; whoever wrote that end, a job that runs is not cut short.
    (_W.ENDED, _R.NOTHING):      _NOT_OURS,
    (_W.ENDED, _R.UNREADABLE):  (_A.REST,             _A.LEAVE_UNREADABLE, _A.LEAVE_UNREADABLE, _A.LOOK_AGAIN),
    (_W.ENDED, _R.CLONING):      _SETTLE,
    (_W.ENDED, _R.CLONED):       _SETTLE,
    (_W.ENDED, _R.STARTED):      _END,
    (_W.ENDED, _R.DELIVERING):  (_A.SETTLE,           _A.SETTLE,           _A.CHECK_DELIVERY,   _A.LOOK_AGAIN),
    (_W.ENDED, _R.DELIVERED):   (_A.SETTLE,           _A.SETTLE,           _A.WATCH,            _A.WATCH),
    (_W.ENDED, _R.EXITED):       _REMOVE,
    # What was seen gone and is back was made by a call that outlived its deadline: it bears our name and our record.
    (_W.ENDED, _R.CLEARED):     (_A.REST,             _A.DELETE,           _A.STOP,             _A.REST),
    (_W.ENDED, _R.REFUSED):      _REST,

    # Somebody wants it gone, job or not. First the VM, then the finalizer.
    (_W.DELETING, _R.NOTHING):   _RELEASE,
    # The file and the Pod both name this VM: that is proof enough to end it, if not to boot it.
    (_W.DELETING, _R.UNREADABLE): (_A.RELEASE,        _A.DELETE,           _A.STOP,             _A.LOOK_AGAIN),
    (_W.DELETING, _R.CLONING):   _SETTLE,
    (_W.DELETING, _R.CLONED):    _SETTLE,
    (_W.DELETING, _R.STARTED):   _END,
    (_W.DELETING, _R.DELIVERING): _END,
    (_W.DELETING, _R.DELIVERED): _END,
    (_W.DELETING, _R.EXITED):    _REMOVE,
    (_W.DELETING, _R.CLEARED):  (_A.RELEASE,          _A.DELETE,           _A.STOP,             _A.RELEASE),
    (_W.DELETING, _R.REFUSED):   _RELEASE,

    # Nobody is left to tell. What is ours is an orphan, what is not ours is none of our business.
    (_W.GONE, _R.NOTHING):       _NOT_OURS,
    (_W.GONE, _R.UNREADABLE):    _LEAVE_UNREADABLE,
    (_W.GONE, _R.CLONING):       _ORPHAN,
    (_W.GONE, _R.CLONED):        _ORPHAN,
    (_W.GONE, _R.STARTED):       _ORPHAN,
    # A job that began is left to end, for a day if need be: so it must be known whether there is one.
    (_W.GONE, _R.DELIVERING):   (_A.FORGET,           _A.REAP,             _A.CHECK_DELIVERY,   _A.LOOK_AGAIN),
    (_W.GONE, _R.DELIVERED):     _ORPHAN,
    (_W.GONE, _R.EXITED):        _ORPHAN,
    (_W.GONE, _R.CLEARED):       _ORPHAN,
    (_W.GONE, _R.REFUSED):      (_A.FORGET,) * 4,
}
# fmt: on


def next_step(wanted: Wanted, recorded: Recorded, observed: Observed) -> Step:
    """Return the one step that brings a Pod's VM further."""
    action = _TABLE[wanted, recorded][_COLUMNS.index(observed)]
    return Step(action, f"the Pod {wanted}; {recorded}; the VM {observed}")


def recorded_as(state: State) -> Recorded:
    """Return where in the table a record stands."""
    return Recorded[state.name]
