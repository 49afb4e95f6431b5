//! Formats of numbers and durations.

use std::time::Duration;

/// Formats a number with at most three digits and a magnitude: `950`, `1.25 k`, `336 k`, `4.2 M`.
pub fn short(number: f64) -> String {
    const MAGNITUDES: [&str; 5] = ["", " k", " M", " G", " T"];
    let mut scaled = number.max(0.0);
    let mut magnitude = 0;
    // A number that would be rounded to 1000 belongs to the next magnitude.
    while scaled >= 999.5 && magnitude + 1 < MAGNITUDES.len() {
        scaled /= 1000.0;
        magnitude += 1;
    }
    let digits = if magnitude == 0 { 0 } else { decimals(scaled) };
    format!("{scaled:.digits$}{}", MAGNITUDES[magnitude])
}

/// Returns the number of decimals that make three digits of a number below 1000.
fn decimals(number: f64) -> usize {
    match number {
        n if n < 9.995 => 2,
        n if n < 99.95 => 1,
        _ => 0,
    }
}

/// Formats a number with all digits, in groups of three: `336,776`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 container`, `2 containers`.
pub fn counted(number: u32, of: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {of}{s}")
}

/// Formats a duration in a suitable unit: `850 µs`, `12.3 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`,
/// `5 d 3 h`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let whole = duration.as_secs();
    if seconds < 0.001 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        let millis = seconds * 1e3;
        format!("{millis:.0$} ms", decimals(millis))
    } else if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else if whole < 3600 {
        format!("{} min {} s", whole / 60, whole % 60)
    } else if whole < 86_400 {
        format!("{} h {} min", whole / 3600, whole / 60 % 60)
    } else {
        format!("{} d {} h", whole / 86_400, whole / 3600 % 24)
    }
}

/// Formats the time since a moment, which is in milliseconds since 1970.
pub fn since(at_ms: u64) -> String {
    if at_ms == 0 {
        return "–".into();
    }
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    duration(Duration::from_millis(now.saturating_sub(at_ms)))
}

/// Formats a moment in milliseconds since 1970, in UTC: `2013-01-01 10:00:00.250`.
pub fn moment(at_ms: u64) -> String {
    let moment = i64::try_from(at_ms)
        .ok()
        .and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    moment.map_or("–".into(), |moment| {
        let text = moment.strftime("%Y-%m-%d %H:%M:%S").to_string();
        format!("{text}.{:03}", at_ms % 1000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_have_three_digits_and_never_a_thousand() {
        let shown: Vec<String> = [
            0.0, 7.4, 999.0, 999.6, 1_250.0, 99_960.0, 336_776.0, 999_999.0, 4.2e6, 3e12,
        ]
        .map(short)
        .to_vec();
        assert_eq!(
            shown,
            [
                "0", "7", "999", "1.00 k", "1.25 k", "100 k", "337 k", "1.00 M", "4.20 M", "3.00 T"
            ]
        );
    }

    #[test]
    fn grouped_numbers_have_a_comma_before_every_third_digit_from_the_end() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(336_776), "336,776");
        assert_eq!(grouped(1_000_000), "1,000,000");
    }

    #[test]
    fn a_moment_is_told_by_its_date_even_if_it_is_none() {
        assert_eq!(moment(1_357_034_400_250), "2013-01-01 10:00:00.250");
        assert_eq!(moment(u64::MAX), "–");
        assert_eq!(since(u64::MAX), "0 µs");
    }

    #[test]
    fn durations_are_told_in_the_unit_that_suits_them() {
        let shown = [0.00085, 0.012, 4.25, 185.0, 7_800.0, 442_800.0]
            .map(|seconds| duration(Duration::from_secs_f64(seconds)));
        assert_eq!(
            shown,
            [
                "850 µs",
                "12.0 ms",
                "4.2 s",
                "3 min 5 s",
                "2 h 10 min",
                "5 d 3 h"
            ]
        );
    }
}
