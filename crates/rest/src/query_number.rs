//! Numbers in paths and query strings, with uniform error messages.

use std::fmt;
use std::marker::PhantomData;

use ardea_coordination::packing::ContainerId;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// An unsigned integer type.
pub(crate) trait WholeNumber: TryFrom<u64> + fmt::Display {
    const MOST: Self;
}

impl WholeNumber for u32 {
    const MOST: Self = u32::MAX;
}

impl WholeNumber for u64 {
    const MOST: Self = u64::MAX;
}

/// Parses a number.
///
/// # Errors
///
/// The message for users. It is the same for all causes: too large, negative, or not a number.
pub(crate) fn read<N: WholeNumber>(text: &str) -> Result<N, String> {
    let number = text.parse::<u64>().ok().and_then(|it| it.try_into().ok());
    number.ok_or_else(|| format!("{text:?} is {}", none::<N>()))
}

fn none<N: WholeNumber>() -> String {
    format!("no whole number from 0 to {}", N::MOST)
}

/// Deserializes an optional number.
pub(crate) fn optional<'de, D: Deserializer<'de>, N: WholeNumber>(
    from: D,
) -> Result<Option<N>, D::Error> {
    // In a query string the number is text, in JSON it is a number.
    from.deserialize_any(Optional(PhantomData))
}

/// Deserializes an optional container number.
pub(crate) fn container<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<ContainerId>, D::Error> {
    Ok(optional(from)?.map(ContainerId))
}

struct Optional<N>(PhantomData<N>);

impl<'de, N: WholeNumber> Visitor<'de> for Optional<N> {
    type Value = Option<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", N::MOST)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        read(text).map(Some).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        let fits = number.try_into().map(Some);
        fits.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Query {
        #[serde(default, deserialize_with = "optional")]
        number: Option<u32>,
        #[serde(default, deserialize_with = "container")]
        container: Option<ContainerId>,
    }

    #[test]
    fn all_invalid_numbers_have_the_same_message() {
        for text in [
            "many",
            "",
            "-1",
            "1.5",
            "4294967296",
            "99999999999999999999",
        ] {
            let told = format!("{text:?} is no whole number from 0 to 4294967295");
            assert_eq!(read::<u32>(text), Err(told.clone()));
            for field in ["number", "container"] {
                let query = serde_urlencoded::from_str::<Query>(&format!("{field}={text}"));
                assert_eq!(query.err().unwrap().to_string(), told);
            }
        }
        assert_eq!(read("4294967295"), Ok(u32::MAX));
        assert_eq!(read("4294967296"), Ok(1_u64 << 32));
    }

    #[test]
    fn a_number_reads_back_from_text_and_from_json_and_may_be_missing() {
        let of = |query: Query| (query.number, query.container);
        let both = (Some(7), Some(ContainerId(2)));
        let query = serde_urlencoded::from_str("number=7&container=2").unwrap();
        assert_eq!(of(query), both);
        let query = serde_json::from_str(r#"{"number": 7, "container": 2}"#).unwrap();
        assert_eq!(of(query), both);
        let query = serde_json::from_str(r#"{"number": null}"#).unwrap();
        assert_eq!(of(query), (None, None));
    }
}
