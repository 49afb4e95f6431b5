//! Within what a job is packed: how many containers, how large, and what each keeps for itself.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::packing::{Refusal, Resources};

/// How a job is to be packed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PackingConfig {
    /// How many containers the policies that spread instances begin with; as few as will do when not said.
    pub containers: Option<NonZeroU32>,
    /// The most that a container may be given.
    pub limits: ContainerLimits,
    /// What a container needs beside its instances.
    pub padding: Padding,
    /// Settings of a policy of one's own.
    pub extra: BTreeMap<String, String>,
}

/// The most that a container may be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerLimits {
    /// Cpu, memory and disk, padding included.
    pub resources: Resources,
    /// How many instances.
    pub instances: Option<NonZeroU32>,
}

impl ContainerLimits {
    /// So much of each resource, and any number of instances.
    pub const fn of(resources: Resources) -> Self {
        ContainerLimits {
            resources,
            instances: None,
        }
    }

    pub(crate) fn most_instances(&self) -> usize {
        self.instances
            .map_or(usize::MAX, |most| most.get() as usize)
    }
}

impl Default for ContainerLimits {
    fn default() -> Self {
        ContainerLimits::of(Resources::UNLIMITED)
    }
}

/// What a container needs beside its instances, for its worker: the greater of an amount and a share of what the instances take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Padding {
    /// At least this much.
    pub absolute: Resources,
    /// And at least this share, in hundredths, of what the instances take.
    pub percent: u32,
}

impl Padding {
    /// What a container needs whose instances take `used`; nothing when that is more than a number can hold.
    pub fn required(&self, used: Resources) -> Option<Resources> {
        Resources::try_of(|of| {
            let used = used.amount(of);
            let share = (u128::from(used) * u128::from(self.percent)).div_ceil(100);
            let padding = u64::try_from(share).ok()?.max(self.absolute.amount(of));
            used.checked_add(padding)
        })
    }

    /// What a container of this size offers to its instances: the most whose [`Padding::required`] is within it.
    ///
    /// # Errors
    ///
    /// When the padding alone is more than the container.
    pub fn offered(&self, size: &Resources) -> Result<Resources, Refusal> {
        Resources::try_of(|of| {
            let size = size.amount(of);
            let beside_absolute = size.checked_sub(self.absolute.amount(of))?;
            // used + ⌈used · p / 100⌉ ≤ size exactly when used · (100 + p) ≤ size · 100
            let beside_share = u128::from(size) * 100 / (100 + u128::from(self.percent));
            Some(beside_absolute.min(u64::try_from(beside_share).unwrap_or(u64::MAX)))
        })
        .ok_or(Refusal::PaddingTooLarge {
            padding: self.absolute,
            limit: *size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::MilliCores;
    use proptest::prelude::*;

    fn cpu(milli: u64) -> Resources {
        Resources {
            cpu: MilliCores(milli),
            ..Resources::ZERO
        }
    }

    proptest! {
        #[test]
        fn what_is_offered_fits_and_one_more_does_not(
            size in 0..u64::MAX,
            absolute in 0..1_000_000u64,
            percent in 0..1_000u32,
            shift in 0..50u32,
        ) {
            let padding = Padding { absolute: cpu(absolute), percent };
            let size = cpu(size >> shift);
            match padding.offered(&size) {
                Err(_) => prop_assert!(absolute > size.cpu.0),
                Ok(offered) => {
                    prop_assert!(padding.required(offered).unwrap().fits_in(&size));
                    let more = offered.checked_add(cpu(1)).unwrap();
                    prop_assert!(!padding.required(more).is_some_and(|all| all.fits_in(&size)));
                }
            }
        }
    }

    #[test]
    fn padding_larger_than_a_container_is_refused_with_both_numbers() {
        let padding = Padding {
            absolute: cpu(2_000),
            percent: 0,
        };
        let refusal = padding.offered(&cpu(1_000)).unwrap_err().to_string();
        assert!(
            refusal.contains("2 cpu") && refusal.contains("1 cpu"),
            "{refusal}"
        );
    }
}
