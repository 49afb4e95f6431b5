//! The steps of a job's random history.

use proptest::prelude::*;

/// A step of a job's random history.
#[derive(Clone, Debug)]
pub enum Step {
    Set {
        loose: bool,
        state: bool,
        slot: u32,
        key: u8,
        value: u8,
    },
    Remove {
        nth: u16,
    },
    /// Rewrites all of a state, or removes entries written long ago.
    Renew {
        state: bool,
        forgets: bool,
    },
    /// Ends an epoch: which instances write full snapshots, which declare outdated state, and
    /// whether it is committed.
    EndEpoch {
        full: u8,
        says: u8,
        is_committed: bool,
    },
    Rescale {
        instances: u32,
    },
    Rollback {
        nth: u16,
    },
    Fold {
        budget: u64,
    },
    DropFold,
    Collect,
    Sweep,
    /// Restarts the process: the state of the store in memory is lost.
    Reopen,
    /// Opens a checkpoint and holds it.
    Hold {
        nth: u16,
    },
}

pub fn step() -> impl Strategy<Value = Step> {
    let set = (
        prop::bool::weighted(0.1),
        any::<bool>(),
        0u32..12,
        0u8..6,
        any::<u8>(),
    );
    let set = set.prop_map(|(loose, state, slot, key, value)| Step::Set {
        loose,
        state,
        slot,
        key,
        value,
    });
    prop_oneof![
        20 => set,
        6 => any::<u16>().prop_map(|nth| Step::Remove { nth }),
        4 => any::<[bool; 2]>().prop_map(|[state, forgets]| Step::Renew { state, forgets }),
        12 => (any::<[u8; 2]>(), prop::bool::weighted(0.8)).prop_map(|([full, says], is_committed)| Step::EndEpoch {
            // Mostly increments.
            full: full & full.rotate_left(3) & full.rotate_left(5),
            // Mostly all.
            says: says | says.rotate_left(3) | says.rotate_left(5),
            is_committed,
        }),
        1 => (1u32..5).prop_map(|instances| Step::Rescale { instances }),
        1 => any::<u16>().prop_map(|nth| Step::Rollback { nth }),
        6 => (1u64..600).prop_map(|budget| Step::Fold { budget }),
        1 => Just(Step::DropFold),
        3 => Just(Step::Collect),
        2 => Just(Step::Sweep),
        1 => Just(Step::Reopen),
        2 => any::<u16>().prop_map(|nth| Step::Hold { nth }),
    ]
}
