//! The configuration of packing: the number and size of containers, and their padding.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::packing::{PackingError, Resources};

/// The configuration of packing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PackingConfig {
    /// The initial number of containers, for the policies that spread instances. If `None`, these
    /// policies use the minimum number.
    pub containers: Option<NonZeroU32>,
    /// The limits of each container.
    pub limits: ContainerLimits,
    /// The resources that a container needs in addition to those of its instances.
    pub padding: Padding,
    /// Further settings, for a user's policy.
    pub extra: BTreeMap<String, String>,
}

/// The limits of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ContainerLimits {
    /// The maximum resources of a container, including padding.
    pub resources: Resources,
    /// The maximum number of instances in a container, if limited.
    pub instances: Option<NonZeroU32>,
}

impl ContainerLimits {
    /// Creates limits with these resources, and without a limit for the number of instances.
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

/// The resources that a container needs for its worker, in addition to those of its instances. For
/// each resource, the padding is the maximum of a fixed amount and a percentage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Padding {
    /// The fixed amount.
    pub absolute: Resources,
    /// The percentage of the instances' resources.
    pub percent: u32,
}

impl Padding {
    /// Returns the total resources of a container whose instances need `used`, including padding;
    /// `None` on overflow.
    pub fn required(&self, used: Resources) -> Option<Resources> {
        Resources::try_of(|of| {
            let used = used.amount(of);
            let share = (u128::from(used) * u128::from(self.percent)).div_ceil(100);
            let padding = u64::try_from(share).ok()?.max(self.absolute.amount(of));
            used.checked_add(padding)
        })
    }

    /// Returns the resources that a container of this size offers to its instances. This is the
    /// maximum amount for which [`Padding::required`] does not exceed `size`.
    ///
    /// # Errors
    ///
    /// If the padding alone exceeds `size`.
    pub fn offered(&self, size: &Resources) -> Result<Resources, PackingError> {
        Resources::try_of(|of| {
            let size = size.amount(of);
            let beside_absolute = size.checked_sub(self.absolute.amount(of))?;
            // used + ⌈used · p / 100⌉ ≤ size exactly when used · (100 + p) ≤ size · 100
            let beside_share = u128::from(size) * 100 / (100 + u128::from(self.percent));
            Some(beside_absolute.min(u64::try_from(beside_share).unwrap_or(u64::MAX)))
        })
        .ok_or(PackingError::PaddingTooLarge {
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
