//! Amounts of cpu, memory and disk, with checked arithmetic.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::packing::Resource;

/// An amount of cpu in thousandths of a core.
///
/// ```
/// use ardea_coordination::packing::MilliCores;
///
/// assert_eq!("2.5".parse(), Ok(MilliCores(2_500)));
/// assert_eq!("250m".parse(), Ok(MilliCores(250)));
/// assert_eq!(MilliCores(2_500).to_string(), "2.5");
/// ```
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MilliCores(pub u64);

/// The error for a text that is not an amount of cpu.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is no amount of cpu: expected cores such as `2` or `0.5`, or thousandths such as `500m`"
)]
pub struct ResourceError(String);

impl FromStr for MilliCores {
    type Err = ResourceError;

    fn from_str(text: &str) -> Result<Self, ResourceError> {
        let refuse = || ResourceError(text.to_string());
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let trimmed = text.trim();
        if let Some(thousandths) = trimmed.strip_suffix('m') {
            return match thousandths.parse() {
                Ok(count) if digits(thousandths) => Ok(MilliCores(count)),
                _ => Err(refuse()),
            };
        }
        let (whole, part) = trimmed.split_once('.').unwrap_or((trimmed, "0"));
        if whole.is_empty() || !(1..=3).contains(&part.len()) || !digits(whole) || !digits(part) {
            return Err(refuse());
        }
        let part: u64 = format!("{part:0<3}").parse().map_err(|_| refuse())?;
        let whole: u64 = whole.parse().map_err(|_| refuse())?;
        whole
            .checked_mul(1000)
            .and_then(|whole| whole.checked_add(part))
            .map(MilliCores)
            .ok_or_else(refuse)
    }
}

/// Formats the amount in cores, with as few decimals as necessary.
impl fmt::Display for MilliCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1000, self.0 % 1000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        let part = format!("{part:03}");
        write!(f, "{whole}.{}", part.trim_end_matches('0'))
    }
}

/// Amounts of cpu, memory and disk, which an instance requires or a container offers; null in JSON
/// means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Cpu, in thousandths of a core.
    #[serde(rename = "cpu_milli", default, with = "or_unlimited")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub cpu: MilliCores,
    /// Memory, in bytes.
    #[serde(default, with = "or_unlimited")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub memory_bytes: u64,
    /// Disk, in bytes.
    #[serde(default, with = "or_unlimited")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub disk_bytes: u64,
}

impl From<MilliCores> for u64 {
    fn from(MilliCores(amount): MilliCores) -> u64 {
        amount
    }
}

impl From<u64> for MilliCores {
    fn from(amount: u64) -> Self {
        MilliCores(amount)
    }
}

/// Serialises unlimited amounts as `null` in readable formats such as JSON, since many JSON readers
/// cannot represent the largest number.
mod or_unlimited {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Copy + Into<u64>, S: Serializer>(
        amount: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match (*amount).into() {
            u64::MAX if serializer.is_human_readable() => serializer.serialize_none(),
            amount => amount.serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, T: From<u64>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let amount = match deserializer.is_human_readable() {
            true => Option::<u64>::deserialize(deserializer)?.unwrap_or(u64::MAX),
            false => u64::deserialize(deserializer)?,
        };
        Ok(T::from(amount))
    }
}

impl Resources {
    /// No resources.
    pub const ZERO: Resources = Resources {
        cpu: MilliCores(0),
        memory_bytes: 0,
        disk_bytes: 0,
    };

    /// Unlimited resources.
    pub const UNLIMITED: Resources = Resources {
        cpu: MilliCores(u64::MAX),
        memory_bytes: u64::MAX,
        disk_bytes: u64::MAX,
    };

    /// Returns the amount of the resource `of`.
    pub fn amount(&self, of: Resource) -> u64 {
        match of {
            Resource::Cpu => self.cpu.0,
            Resource::Memory => self.memory_bytes,
            Resource::Disk => self.disk_bytes,
        }
    }

    /// Creates resources from the results of `amount` for each resource; `None` if one result is
    /// `None`.
    pub(crate) fn try_of(amount: impl Fn(Resource) -> Option<u64>) -> Option<Self> {
        Some(Resources {
            cpu: MilliCores(amount(Resource::Cpu)?),
            memory_bytes: amount(Resource::Memory)?,
            disk_bytes: amount(Resource::Disk)?,
        })
    }

    /// Returns the sum for each resource, or `None` on overflow.
    pub fn checked_add(self, other: Resources) -> Option<Resources> {
        Resources::try_of(|of| self.amount(of).checked_add(other.amount(of)))
    }

    /// Returns the difference for each resource, or `None` if one would be negative.
    pub fn checked_sub(self, other: Resources) -> Option<Resources> {
        Resources::try_of(|of| self.amount(of).checked_sub(other.amount(of)))
    }

    /// Returns the product for each resource, or `None` on overflow.
    pub fn checked_mul(self, times: u64) -> Option<Resources> {
        Resources::try_of(|of| self.amount(of).checked_mul(times))
    }

    /// Returns the maximum of the two amounts for each resource.
    pub fn max_of_each(self, other: Resources) -> Resources {
        Resources {
            cpu: self.cpu.max(other.cpu),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            disk_bytes: self.disk_bytes.max(other.disk_bytes),
        }
    }

    /// Returns true if no amount exceeds that of `limit`.
    pub fn fits_in(&self, limit: &Resources) -> bool {
        self.first_over(limit).is_none()
    }

    /// Returns the first resource whose amount exceeds that of `limit`, if any.
    pub fn first_over(&self, limit: &Resources) -> Option<Resource> {
        Resource::ALL
            .into_iter()
            .find(|of| self.amount(*of) > limit.amount(*of))
    }

    /// Returns the dominant share: the largest share of `limit` among the resources, in units of
    /// 2⁻³². Integers make the order of instances the same on every machine.
    pub(crate) fn dominant_share(&self, limit: &Resources) -> u128 {
        Resource::ALL
            .into_iter()
            .map(|of| (u128::from(self.amount(of)) << 32) / u128::from(limit.amount(of).max(1)))
            .max()
            .unwrap_or(0)
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [cpu, memory, disk] = Resource::ALL.map(|of| of.display(self.amount(of)));
        write!(f, "{cpu} cpu, {memory} memory, {disk} disk")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cpu_reads_back_as_it_is_written(milli in any::<u64>()) {
            let cpu = MilliCores(milli);
            prop_assert_eq!(cpu.to_string().parse(), Ok(cpu));
        }

        #[test]
        fn no_text_makes_the_reader_of_cpu_panic(text in "[0-9.m µ-]{0,24}") {
            let _ = text.parse::<MilliCores>();
        }
    }

    #[test]
    fn what_is_no_cpu_is_refused() {
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "1.2345",
            "-1",
            "1e3",
            "m",
            "+5m",
            "99999999999999999999",
        ] {
            assert!(text.parse::<MilliCores>().is_err(), "{text}");
        }
    }

    #[test]
    fn arithmetic_stops_at_the_limits_of_numbers() {
        let one = Resources {
            cpu: MilliCores(1),
            ..Resources::ZERO
        };
        assert_eq!(Resources::UNLIMITED.checked_add(one), None);
        assert_eq!(Resources::ZERO.checked_sub(one), None);
        assert_eq!(Resources::UNLIMITED.checked_mul(2), None);
        assert_eq!(one.checked_add(one), one.checked_mul(2));
    }

    #[test]
    fn what_has_no_limit_is_null_in_json_and_comes_back_without_one() {
        let free = Resources {
            cpu: MilliCores(500),
            ..Resources::UNLIMITED
        };
        let json = serde_json::to_string(&free).unwrap();
        let expected = r#"{"cpu_milli":500,"memory_bytes":null,"disk_bytes":null}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<Resources>(&json).unwrap(), free);
        let none: Resources = serde_json::from_str("{}").unwrap();
        assert_eq!(none, Resources::ZERO);
    }
}
