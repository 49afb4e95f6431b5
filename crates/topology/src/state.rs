//! The state of spouts and bolts in checkpoints.

use std::ops::{Deref, DerefMut};

use ardea_core::instance_state::{put, value};
use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Instance, Progress, RestoredState, Result,
    SmallSnapshot, SnapshotRequest, SnapshotWriter, StateChunk, StateEntry, StateShape,
};

/// The state of a component instance that checkpoints contain.
///
/// A job whose guarantee keeps state is refused if a component has not declared its state.
///
/// The states of the crate `ardea-state` can be returned: a `KeyedState` for the keys of a fields
/// grouping, an `InstanceValue` for the position of a spout.
pub enum ComponentState<'a> {
    /// The component has not declared its state.
    Undeclared,
    /// The component has no state between two tuples.
    Stateless,
    /// Checkpoints contain this state.
    Checkpointed(&'a mut dyn Checkpointed),
}

/// The description of acknowledgements, which checkpoints do not contain.
pub(crate) const UNSAVED_ACKS: &str = "which tuples were acked: a topology has either acks or a guarantee (`reliability: at-most-once`)";

/// The description of the state of a bolt that has declared none.
pub(crate) const UNDECLARED_BOLT: &str =
    "the state of a bolt, which `Bolt::state` does not declare";

/// The name of the entry that each component instance adds to its snapshots.
const ENDED: &str = "component ended";

/// A component instance with its snapshots.
///
/// Snapshots contain the component's state, and whether the instance has emitted its last results:
/// an instance that is restored after its end must not emit them again.
pub(crate) struct StatefulComponent<C> {
    component: C,
    state_of: fn(&mut C) -> ComponentState<'_>,
    is_declared: bool,
    instance: Instance,
    /// True if the instance has emitted its last results.
    pub(crate) has_ended: bool,
    awaits_commit: bool,
    own: SmallSnapshot,
    /// Restored entries that are not passed to the component yet.
    restored: StateChunk,
}

impl<C> StatefulComponent<C> {
    pub(crate) fn new(
        mut component: C,
        state_of: fn(&mut C) -> ComponentState<'_>,
        instance: Instance,
    ) -> Self {
        StatefulComponent {
            is_declared: !matches!(state_of(&mut component), ComponentState::Undeclared),
            component,
            state_of,
            instance,
            has_ended: false,
            awaits_commit: false,
            own: SmallSnapshot::default(),
            restored: StateChunk::default(),
        }
    }

    /// Returns true if the component has declared its state.
    pub(crate) fn is_declared(&self) -> bool {
        self.is_declared
    }

    /// Returns the snapshots of the component; `None` if its state is not declared.
    pub(crate) fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed>
    where
        C: Send,
    {
        if self.is_declared { Some(self) } else { None }
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        match (self.state_of)(&mut self.component) {
            ComponentState::Checkpointed(state) => Some(state),
            ComponentState::Undeclared | ComponentState::Stateless => None,
        }
    }

    /// Passes the restored entries to the component.
    fn pass_on(&mut self) -> Result<()> {
        let entries = std::mem::take(&mut self.restored);
        let (instance, mut position) = (self.instance, 0);
        while position < entries.byte_len() {
            let before = position;
            let mut left = RestoredState::new(&entries, &mut position, instance, usize::MAX);
            match self.state() {
                Some(state) => state.restore(&mut left)?,
                None => {
                    if let Some(entry) = left.next() {
                        return Err(RestoredState::unknown(&entry));
                    }
                }
            }
            if position == before {
                let what = "the state of the component does not take the entries of its snapshot";
                return Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint("let `restore` take all entries that it gets"));
            }
        }
        Ok(())
    }
}

impl<C> Deref for StatefulComponent<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.component
    }
}

impl<C> DerefMut for StatefulComponent<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.component
    }
}

impl<C> Checkpointed for StatefulComponent<C> {
    fn states(&mut self) -> Vec<StateShape> {
        let mut shapes = self.state().map_or_else(Vec::new, |state| state.states());
        shapes.push(StateShape::own(ENDED));
        shapes
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        let key = (self.instance.index, &b""[..]);
        put(self.own.begin(), ENDED, key, &self.has_ended)?;
        let Some(state) = self.state() else {
            return Ok(());
        };
        state.take_snapshot(snapshot)?;
        self.awaits_commit = state.awaits_commit();
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let own = self.own.write(writer)?;
        match self.state() {
            Some(state) if own.done => Ok(own | state.write_snapshot(writer)?),
            _ => Ok(own),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state == ENDED {
                // The instances of a bolt end in the same epoch.
                self.has_ended |= value::<bool>(&entry)?;
                continue;
            }
            self.restored.push(StateEntry {
                state: entry.state,
                partition: entry.partition,
                key: entry.key,
                value: Some(entry.value),
            })?;
        }
        self.pass_on()
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.state()
            .map_or(Ok(Progress::DONE), |state| state.on_restored(epoch))
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.state().map_or(Ok(Progress::DONE), |state| {
            state.on_checkpoint_committed(epoch)
        })
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        self.state().map_or(Ok(Progress::DONE), |state| {
            state.on_checkpoint_aborted(epoch)
        })
    }

    fn awaits_commit(&self) -> bool {
        self.awaits_commit
    }
}
