//! Parsing and formatting of durations: `10ms`, `500us`, `1m30s`, `1.5s`.
//!
//! Used for settings, the command line and NEXMark.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The units, longest first, in nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The largest number of decimals with which a duration can be a whole number of nanoseconds: a day
/// is 2¹⁶ · 5¹¹ · 27 ns.
const MAX_DECIMALS: usize = 16;

/// The reason why a text is not a duration.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DurationError {
    /// The text is empty.
    Empty,
    /// This text is not a number.
    NotANumber(String),
    /// This number has no unit.
    NoUnit(String),
    /// This unit of time is unknown.
    UnknownUnit(String),
    /// This unit comes after a shorter one or a second time.
    OutOfOrder(String),
    /// This part is not a whole number of nanoseconds.
    TooFine(String),
    /// Longer than [`Duration::MAX`].
    TooLong,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DurationError::Empty => f.write_str("the duration is empty"),
            DurationError::NotANumber(found) => {
                write!(f, "a duration begins with a number, not with {found:?}")
            }
            DurationError::NoUnit(number) => write!(
                f,
                "{number} has no unit: write {number}ms for milliseconds, {number}s for seconds"
            ),
            DurationError::UnknownUnit(unit) => write!(
                f,
                "{unit:?} is no unit of time: use d, h, m, s, ms, us or ns"
            ),
            DurationError::OutOfOrder(unit) => write!(
                f,
                "the unit {unit} comes after a shorter one or twice: write the longest first, as in 1m30s"
            ),
            DurationError::TooFine(part) => {
                write!(f, "{part} is not a whole number of nanoseconds")
            }
            DurationError::TooLong => f.write_str("the duration is too long"),
        }
    }
}

impl Error for DurationError {}

/// Parses a duration: numbers with the units `d`, `h`, `m`, `s`, `ms`, `us` (or `µs`) and `ns`,
/// longest first.
///
/// A number may have decimals if it is a whole number of nanoseconds. Spaces between the parts are
/// allowed. Zero needs no unit.
///
/// ```
/// use std::time::Duration;
/// use ardea_config::parse_duration;
///
/// assert_eq!(parse_duration("10ms"), Ok(Duration::from_millis(10)));
/// assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
/// assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1500)));
/// assert_eq!(
///     parse_duration("10").unwrap_err().to_string(),
///     "10 has no unit: write 10ms for milliseconds, 10s for seconds"
/// );
/// ```
///
/// # Errors
///
/// [`DurationError`], which names the wrong part and a correct form.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(DurationError::Empty);
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total: u128 = 0;
    let mut shortest = u128::MAX;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        if number.is_empty() {
            return Err(DurationError::NotANumber(rest.to_string()));
        }
        let (unit, after) = split_where(after.trim_start(), |c| !c.is_alphabetic());
        let nanos = unit_nanos(number, unit)?;
        if nanos >= shortest {
            return Err(DurationError::OutOfOrder(unit.to_string()));
        }
        shortest = nanos;
        total = part_nanos(number, unit, nanos)?
            .checked_add(total)
            .ok_or(DurationError::TooLong)?;
        rest = after.trim_start();
    }
    from_nanos(total)
}

/// Formats a duration so that [`parse_duration`] returns exactly the same duration: `1m30s`,
/// `1s500ms`, `0s`.
///
/// ```
/// use std::time::Duration;
/// use ardea_config::format_duration;
///
/// assert_eq!(format_duration(Duration::from_micros(100)), "100us");
/// assert_eq!(format_duration(Duration::from_millis(90_500)), "1m30s500ms");
/// ```
pub fn format_duration(duration: Duration) -> String {
    if duration.is_zero() {
        return "0s".to_string();
    }
    let mut nanos = duration.as_nanos();
    let mut text = String::new();
    for (unit, length) in UNITS {
        let number = nanos / length;
        if number > 0 {
            text.push_str(&number.to_string());
            text.push_str(unit);
        }
        nanos %= length;
    }
    text
}

fn split_where(text: &str, end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(end).unwrap_or(text.len()))
}

fn unit_nanos(number: &str, unit: &str) -> Result<u128, DurationError> {
    // The micro sign, and the Greek letter of the same shape.
    let unit = match unit {
        "" => return Err(DurationError::NoUnit(number.to_string())),
        "\u{b5}s" | "\u{3bc}s" => "us",
        other => other,
    };
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, nanos)| *nanos)
        .ok_or_else(|| DurationError::UnknownUnit(unit.to_string()))
}

/// Returns `number`, which consists of digits and points, times a unit of `length` nanoseconds.
fn part_nanos(number: &str, unit: &str, length: u128) -> Result<u128, DurationError> {
    let (whole, decimals) = match number.split_once('.') {
        Some((whole, decimals)) => (whole, decimals),
        None => (number, "0"),
    };
    if whole.is_empty() || decimals.is_empty() || decimals.contains('.') {
        return Err(DurationError::NotANumber(number.to_string()));
    }
    let too_fine = || DurationError::TooFine(format!("{number}{unit}"));
    let decimals = decimals.trim_end_matches('0');
    if decimals.len() > MAX_DECIMALS {
        return Err(too_fine());
    }
    let scale = 10u128.pow(decimals.len() as u32);
    let scaled = decimals.parse::<u128>().unwrap_or(0) * length;
    if !scaled.is_multiple_of(scale) {
        return Err(too_fine());
    }
    // Only too many digits fail to parse as a u128.
    let whole: u128 = whole.parse().map_err(|_| DurationError::TooLong)?;
    whole
        .checked_mul(length)
        .and_then(|nanos| nanos.checked_add(scaled / scale))
        .ok_or(DurationError::TooLong)
}

fn from_nanos(nanos: u128) -> Result<Duration, DurationError> {
    const SECOND: u128 = 1_000_000_000;
    let seconds = u64::try_from(nanos / SECOND).map_err(|_| DurationError::TooLong)?;
    Ok(Duration::new(seconds, (nanos % SECOND) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_duration() -> impl Strategy<Value = Duration> {
        let seconds = prop_oneof![any::<u64>(), 0..100_000u64, Just(0)];
        let nanos = prop_oneof![0..1_000_000_000u32, Just(0)];
        (seconds, nanos).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_exactly(duration in any_duration()) {
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9.dhmsun\u{b5} _-]{0,60}") {
            let _ = parse_duration(&text);
        }

        #[test]
        fn what_is_read_prints_as_the_same_duration(text in "[0-9]{1,6}(\\.[0-9]{1,3})?(d|h|m|s|ms|us)") {
            let duration = parse_duration(&text).unwrap();
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
    }

    #[test]
    fn the_longest_duration_reads_back() {
        assert_eq!(
            parse_duration(&format_duration(Duration::MAX)),
            Ok(Duration::MAX)
        );
    }

    #[test]
    fn people_write_durations_in_many_ways() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("500us", 500_000),
            ("500\u{b5}s", 500_000),
            ("500\u{3bc}s", 500_000),
            (" 2 s ", 2_000_000_000),
            ("1m 30s", 90_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0.0005ms", 500),
            ("1.000000000000000000000s", 1_000_000_000),
            ("1d1h1m1s1ms1us1ns", 90_061_001_001_001),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_nanos(nanos)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_wrong_duration_says_which_part_is_wrong() {
        use DurationError::*;
        let too_many = format!("{}s", "9".repeat(60));
        for (text, error) in [
            ("", Empty),
            ("  ", Empty),
            ("ms", NotANumber("ms".into())),
            ("-5s", NotANumber("-5s".into())),
            ("1.s", NotANumber("1.".into())),
            (".5s", NotANumber(".5".into())),
            ("1.2.3s", NotANumber("1.2.3".into())),
            ("1s,2ms", NotANumber(",2ms".into())),
            ("10", NoUnit("10".into())),
            ("1m30", NoUnit("30".into())),
            ("10sec", UnknownUnit("sec".into())),
            ("10S", UnknownUnit("S".into())),
            ("1s2m", OutOfOrder("m".into())),
            ("1s2s", OutOfOrder("s".into())),
            ("0.5ns", TooFine("0.5ns".into())),
            (
                "0.00000000000000000001s",
                TooFine("0.00000000000000000001s".into()),
            ),
            ("18446744073709551616s", TooLong),
            (too_many.as_str(), TooLong),
        ] {
            assert_eq!(parse_duration(text), Err(error), "{text}");
        }
    }
}
