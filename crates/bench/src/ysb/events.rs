//! The events: interactions of users with advertisements.

use std::ops::Range;

use ardea_core::{Instance, Timestamp};
use serde::{Deserialize, Serialize};

use crate::rows::EventRows;

/// The number of advertisements of a campaign.
pub(super) const ADS: u64 = 10;

/// The number of event types, one of which is a view.
const KINDS: u64 = 3;

/// A user's interaction with an advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AdEvent {
    pub(super) ad: u64,
    /// The type of the event; zero for a view.
    pub(super) kind: u8,
}

/// The events of `campaigns` campaigns.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdEvents {
    campaigns: u64,
    /// The number of events after which they repeat; `None` if they do not.
    cycle: Option<u64>,
    instance: Instance,
}

impl AdEvents {
    pub(super) fn new(campaigns: u64, cycle: Option<u64>) -> Self {
        AdEvents {
            campaigns,
            cycle,
            instance: Instance::ONLY,
        }
    }

    pub(super) fn event(&self, index: u64) -> AdEvent {
        let random = self.random(index);
        AdEvent {
            ad: (random >> 32) % (self.campaigns * ADS),
            kind: (random % (1 << 31) % KINDS) as u8,
        }
    }

    /// Returns the random number of an event.
    pub(super) fn random(&self, index: u64) -> u64 {
        let index = self.cycle.map_or(index, |cycle| index % cycle);
        let instance = u64::from(self.instance.index) << 40;
        let mixed = (index ^ instance).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

impl EventRows for AdEvents {
    type Row = AdEvent;

    fn of_instance(&self, instance: Instance) -> Self {
        AdEvents { instance, ..*self }
    }

    fn fill(
        &self,
        run: Range<u64>,
        _: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<AdEvent>,
        times: &mut Vec<Timestamp>,
    ) {
        rows.extend(run.clone().map(|index| self.event(index)));
        times.extend(run.map(time));
    }
}
