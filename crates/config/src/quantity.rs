//! Parsing and formatting of counts and sizes: `1_000_000`, `64KiB`.

use std::error::Error;
use std::fmt;

/// The units of size in bytes, longest first within each family.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// The number of [`UNITS`] that are powers of 1024; sizes are formatted with these.
const BINARY_UNITS: usize = 5;

/// The reason why a text is not a count or size.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QuantityError {
    /// This text is not a whole number.
    NotANumber(String),
    /// This unit of size is unknown.
    UnknownUnit(String),
    /// This number is larger than 2⁶⁴ - 1.
    TooLarge(String),
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuantityError::NotANumber(found) => write!(f, "{found:?} is no whole number"),
            QuantityError::UnknownUnit(unit) => write!(
                f,
                "{unit:?} is no unit of size: use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB"
            ),
            QuantityError::TooLarge(found) => write!(f, "{found} is too large"),
        }
    }
}

impl Error for QuantityError {}

/// Parses a whole number; `_` is allowed between digits.
///
/// ```
/// use ardea_config::parse_count;
///
/// assert_eq!(parse_count("1_000_000"), Ok(1_000_000));
/// assert!(parse_count("-1").is_err());
/// ```
///
/// # Errors
///
/// If there is another character, or the number is above [`u64::MAX`].
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let well_formed = text
        .split('_')
        .all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit()));
    if !well_formed {
        return Err(QuantityError::NotANumber(text.to_string()));
    }
    // Only too many digits fail to parse as a u64.
    text.replace('_', "")
        .parse()
        .map_err(|_| QuantityError::TooLarge(text.to_string()))
}

/// Parses a size in bytes: a count with a unit, by default `B`. `KiB` is 1024 bytes, `kB` is 1000.
///
/// ```
/// use ardea_config::parse_bytes;
///
/// assert_eq!(parse_bytes("64KiB"), Ok(65_536));
/// assert_eq!(parse_bytes("4096"), Ok(4096));
/// ```
///
/// # Errors
///
/// If the number or the unit is invalid, or the size is above [`u64::MAX`].
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit {
        "" => 1,
        unit => UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, scale)| *scale)
            .ok_or_else(|| QuantityError::UnknownUnit(unit.to_string()))?,
    };
    if number.is_empty() {
        return Err(QuantityError::NotANumber(text.to_string()));
    }
    parse_count(number)?
        .checked_mul(scale)
        .ok_or_else(|| QuantityError::TooLarge(text.to_string()))
}

/// Formats a size in the largest unit that divides it, so that [`parse_bytes`] returns the same
/// size.
///
/// ```
/// use ardea_config::format_bytes;
///
/// assert_eq!(format_bytes(65_536), "64KiB");
/// assert_eq!(format_bytes(65_537), "65537B");
/// ```
pub fn format_bytes(bytes: u64) -> String {
    if bytes == 0 {
        return "0B".to_string();
    }
    let (unit, scale) = UNITS[..BINARY_UNITS]
        .iter()
        .find(|(_, scale)| bytes.is_multiple_of(*scale))
        .unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / scale)
}

/// Formats a size for display: exactly if that takes few digits, else with one decimal in the
/// largest suitable unit.
///
/// ```
/// use ardea_config::readable_bytes;
///
/// assert_eq!(readable_bytes(512 << 20), "512MiB");
/// assert_eq!(readable_bytes(73_819_751), "70.4MiB");
/// ```
pub fn readable_bytes(bytes: u64) -> String {
    const FEW: usize = 4;
    let exact = format_bytes(bytes);
    let digits = exact.bytes().filter(u8::is_ascii_digit).count();
    let units = &UNITS[..BINARY_UNITS];
    let unit = units
        .iter()
        .find(|(_, scale)| bytes >= *scale && *scale > 1);
    match unit {
        Some((unit, scale)) if digits > FEW => {
            format!("{:.1}{unit}", bytes as f64 / *scale as f64)
        }
        _ => exact,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_printed_size_reads_back_exactly(bytes in any::<u64>(), shift in 0..64u32) {
            for bytes in [bytes, bytes >> shift, bytes << shift] {
                prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
            }
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in "[0-9_a-zA-Z µ.-]{0,30}") {
            let _ = (parse_count(&text), parse_bytes(&text));
        }
    }

    #[test]
    fn underscores_stand_between_digits_only() {
        assert_eq!(parse_count("1_000"), Ok(1000));
        for text in ["_1", "1_", "1__0", "_", "", "+1", "1.0", "0x10", "١"] {
            assert!(
                matches!(parse_count(text), Err(QuantityError::NotANumber(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn a_size_too_large_is_refused_not_wrapped() {
        for text in ["18446744073709551616", "18446744073709551615KiB"] {
            assert!(
                matches!(parse_bytes(text), Err(QuantityError::TooLarge(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn a_thousand_and_1024_are_told_apart() {
        assert_eq!(parse_bytes("1kB"), Ok(1000));
        assert_eq!(parse_bytes("1 KiB"), Ok(1024));
        for text in ["1K", "1KB", "1kib", "1m"] {
            assert!(
                matches!(parse_bytes(text), Err(QuantityError::UnknownUnit(_))),
                "{text}"
            );
        }
    }
}
