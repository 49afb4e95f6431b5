//! Numbers in a path or behind its `?`, and what is told of those that are none.

use std::fmt;
use std::marker::PhantomData;

use ardea_coordination::packing::ContainerId;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A whole number that a type can hold.
pub(crate) trait Whole: TryFrom<u64> + fmt::Display {
    const MOST: Self;
}

impl Whole for u32 {
    const MOST: Self = u32::MAX;
}

impl Whole for u64 {
    const MOST: Self = u64::MAX;
}

/// The number that a text is.
///
/// # Errors
///
/// One sentence, whatever else it is: too large, negative, no number at all.
pub(crate) fn read<N: Whole>(text: &str) -> Result<N, String> {
    let number = text.parse::<u64>().ok().and_then(|it| it.try_into().ok());
    number.ok_or_else(|| format!("{text:?} is {}", none::<N>()))
}

fn none<N: Whole>() -> String {
    format!("no whole number from 0 to {}", N::MOST)
}

/// Reads what is a number, or is not said.
pub(crate) fn optional<'de, D: Deserializer<'de>, N: Whole>(
    from: D,
) -> Result<Option<N>, D::Error> {
    // Behind a `?` all is text, in JSON a number is none.
    from.deserialize_any(Optional(PhantomData))
}

/// Reads what is a container, or is not said.
pub(crate) fn container<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<ContainerId>, D::Error> {
    Ok(optional(from)?.map(ContainerId))
}

struct Optional<N>(PhantomData<N>);

impl<'de, N: Whole> Visitor<'de> for Optional<N> {
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
    fn whatever_is_no_number_is_told_in_the_same_sentence() {
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
