//! Decimal numbers as text, and lossless conversion to other number types.

/// A decimal number: `digits` × 10^`exponent`, where `digits` neither begin nor end with zero.
#[derive(PartialEq, Eq, Debug)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Parses a JSON number.
    fn of(literal: &str) -> Option<Decimal> {
        let (is_negative, rest) = match literal.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, literal),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = format!("{whole}{fraction}");
        let mut exponent = i64::from(exponent) - fraction.len() as i64;
        let kept = digits.trim_end_matches('0').len();
        exponent += (digits.len() - kept) as i64;
        digits.truncate(kept);
        let digits = digits.trim_start_matches('0').to_string();
        if digits.is_empty() {
            exponent = 0;
        }
        Some(Decimal {
            is_negative: is_negative && !digits.is_empty(),
            digits,
            exponent,
        })
    }
}

/// Returns the integer value of a literal such as `12`, `12.00` or `1e3`. `None` if it has a
/// fractional part or is out of range.
pub(crate) fn whole(literal: &str) -> Option<i128> {
    if let Ok(number) = literal.parse() {
        return Some(number);
    }
    let number = Decimal::of(literal)?;
    let zeros = usize::try_from(number.exponent).ok().filter(|n| *n < 40)?;
    let sign = if number.is_negative { "-" } else { "" };
    let digits = if number.digits.is_empty() {
        "0"
    } else {
        &number.digits
    };
    format!("{sign}{digits}{}", "0".repeat(zeros)).parse().ok()
}

/// A binary floating-point type that may represent a literal exactly.
pub(crate) trait Float: Copy {
    /// Number of decimal digits that survive the conversion to this type and back.
    const DIGITS: usize;

    /// Returns the number nearest to the literal; `None` if the literal is out of range.
    fn nearest(literal: &str) -> Option<Self>;
    /// Returns the shortest literal that parses to the same number.
    fn shortest(self) -> String;
    /// Returns the exact value with `places` decimal places.
    fn exact(self, places: usize) -> String;
}

macro_rules! float {
    ($kind:ty, $digits:literal) => {
        impl Float for $kind {
            const DIGITS: usize = $digits;

            fn nearest(literal: &str) -> Option<Self> {
                literal
                    .parse()
                    .ok()
                    .filter(|number: &$kind| number.is_finite())
            }

            fn shortest(self) -> String {
                format!("{self:e}")
            }

            fn exact(self, places: usize) -> String {
                format!("{self:.places$}")
            }
        }
    };
}

float!(f32, 6);
float!(f64, 15);

/// Parses a literal as a floating-point number. `None` if digits would be lost.
pub(crate) fn float<F: Float>(literal: &str) -> Option<F> {
    let number = F::nearest(literal)?;
    let is_short = literal.len() <= F::DIGITS && !literal.contains(['e', 'E']);
    if is_short {
        return Some(number);
    }
    let wanted = Decimal::of(literal)?;
    if Decimal::of(&number.shortest())? == wanted {
        return Some(number);
    }
    let places = usize::try_from(-wanted.exponent).unwrap_or(0);
    // The smallest `f64` has about this many decimal places.
    let is_exact = places <= 1_100 && Decimal::of(&number.exact(places))? == wanted;
    is_exact.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float_is_given_only_if_it_holds_all_digits() {
        for held in [
            "0",
            "-0",
            "0.1",
            "12.500",
            "1e20",
            "1E+2",
            "123456789012345",
            "0.1234567890123456",
            "1152921504606846976",
            "1.152921504606847e+18",
            "5e-324",
            "1.7976931348623157e308",
            "0.000000000000000000000000000000000000000000000000125",
        ] {
            assert!(float::<f64>(held).is_some(), "{held}");
        }
        for lost in [
            "9007199254740993",
            "0.12345678901234567890",
            "1e400",
            "1e-400",
            "123456789012345678.1",
        ] {
            assert_eq!(float::<f64>(lost), None, "{lost}");
        }
        assert_eq!(float::<f32>("0.1"), Some(0.1));
        assert_eq!(float::<f32>("0.123456789"), None);
        assert_eq!(float::<f32>("16777217"), None);
        assert_eq!(float::<f32>("16777216"), Some(16_777_216.0));
    }

    #[test]
    fn a_literal_is_a_whole_number_whatever_its_form() {
        for (literal, number) in [
            ("12", 12),
            ("-7.00", -7),
            ("1e3", 1_000),
            ("0.0", 0),
            ("1.5e1", 15),
        ] {
            assert_eq!(whole(literal), Some(number), "{literal}");
        }
        for none in ["1.5", "1e-1", "1e60"] {
            assert_eq!(whole(none), None, "{none}");
        }
        assert_eq!(whole("18446744073709551615"), Some(i128::from(u64::MAX)));
    }
}
