//! The events of the auction site, complete with their strings, and their format as JSON lines.
//!
//! A line is an object whose `kind` is `person`, `auction` or `bid`. Its other fields are those of
//! the struct, in snake_case:
//! `{"kind":"bid","auction":1001,"bidder":1007,"price":250,…,"date_time":1436918400000,…}`. Unknown
//! fields are ignored, missing or null strings are empty, and a missing number is an error.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The exchange rate of query 1 from dollars to euros. Prices are integers, so the product is a
/// floating point number: `price as f64 * DOLLAR_TO_EURO`.
pub const DOLLAR_TO_EURO: f64 = 0.908;

/// A person registered with the site: a seller, a bidder, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// The id of the person.
    pub id: u64,
    /// First and last name.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub name: String,
    /// The email address.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub email_address: String,
    /// The credit card number: sixteen digits in groups of four.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub credit_card: String,
    /// The city of residence.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub city: String,
    /// The two letters of the city's state in the United States.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub state: String,
    /// The time of the registration, in milliseconds since the epoch.
    pub date_time: i64,
    /// Padding that gives the event its size.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub extra: String,
}

/// An item put up for sale for a limited time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auction {
    /// The id of the auction.
    pub id: u64,
    /// The name of the item.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub item_name: String,
    /// The description of the item.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub description: String,
    /// The price at which bidding starts.
    pub initial_bid: u64,
    /// The price under which the seller need not sell; the queries ignore it.
    pub reserve: u64,
    /// The time it opened, in milliseconds since the epoch.
    pub date_time: i64,
    /// The last millisecond in which a bid counts, in milliseconds since the epoch.
    pub expires: i64,
    /// The [`Person::id`] of the seller.
    pub seller: u64,
    /// The category of the item, from 10 upwards.
    pub category: u64,
    /// Padding that gives the event its size.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub extra: String,
}

/// An offer for the item of an auction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bid {
    /// The [`Auction::id`] of the bid; the bid may come before the auction does.
    pub auction: u64,
    /// The [`Person::id`] of the bidder.
    pub bidder: u64,
    /// The price offered.
    pub price: u64,
    /// The channel through which the bidder came.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub channel: String,
    /// The page on which the bid was made.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub url: String,
    /// The time of the bid, in milliseconds since the epoch.
    pub date_time: i64,
    /// Padding that gives the event its size.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub extra: String,
}

/// An event of the site, and one JSON line in human-readable formats. In binary formats, as between
/// the instances of a job, it is a plain enum, which is read several times as fast.
///
/// ```
/// use ardea_nexmark::Event;
///
/// let line = r#"{"kind":"bid","auction":1001,"bidder":1007,"price":250,"date_time":-5,"x":[]}"#;
/// let event: Event = serde_json::from_str(line)?;
/// assert_eq!(event.date_time(), -5);
/// let Event::Bid(bid) = event else { panic!("it says bid") };
/// assert_eq!((bid.auction, bid.price, bid.url.as_str()), (1001, 250, ""));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A person registers.
    Person(Person),
    /// An auction opens.
    Auction(Auction),
    /// A bid is made.
    Bid(Bid),
}

/// The format of an event in a file: the kind is one of its fields. Reading it stores the fields
/// before the kind, so [`JsonVisitor`] only reads events of which it is not the first field.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Event", tag = "kind", rename_all = "snake_case")]
enum JsonEvent {
    Person(Person),
    Auction(Auction),
    Bid(Bid),
}

/// The kind of an event in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventKind {
    Person,
    Auction,
    Bid,
}

/// The name of a field.
#[derive(Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads an event, whose kind is usually its first field.
struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
        let Some(FieldName(name)) = map.next_key()? else {
            return Err(A::Error::missing_field("kind"));
        };
        if name != "kind" {
            let fields = FieldsFrom {
                first: Some(name),
                rest: map,
            };
            return JsonEvent::deserialize(MapAccessDeserializer::new(fields));
        }
        let kind = map.next_value()?;
        let fields = MapAccessDeserializer::new(map);
        Ok(match kind {
            EventKind::Person => Event::Person(Person::deserialize(fields)?),
            EventKind::Auction => Event::Auction(Auction::deserialize(fields)?),
            EventKind::Bid => Event::Bid(Bid::deserialize(fields)?),
        })
    }
}

/// The fields of an object of which the first name was already read.
struct FieldsFrom<'a, A> {
    first: Option<Cow<'a, str>>,
    rest: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for FieldsFrom<'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(name) => seed.deserialize(name.into_deserializer()).map(Some),
            None => self.rest.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.rest.next_value_seed(seed)
    }
}

/// The format of an event between instances.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Event")]
enum BinaryEvent {
    Person(Person),
    Auction(Auction),
    Bid(Bid),
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            JsonEvent::serialize(self, serializer)
        } else {
            BinaryEvent::serialize(self, serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_map(JsonVisitor)
        } else {
            BinaryEvent::deserialize(deserializer)
        }
    }
}

impl Event {
    /// Returns the time of the event, in milliseconds since the epoch.
    pub fn date_time(&self) -> i64 {
        match self {
            Self::Person(person) => person.date_time,
            Self::Auction(auction) => auction.date_time,
            Self::Bid(bid) => bid.date_time,
        }
    }
}

fn text_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ardea_codec::codec_of;
    use ardea_core::{Chunk, Rows, Timestamp};

    use super::*;
    use crate::{Generator, GeneratorConfig};

    fn read(line: &str) -> Result<Event, serde_json::Error> {
        serde_json::from_str(line)
    }

    #[test]
    fn a_bid_is_written_with_its_kind_first_and_read_back_the_same() {
        let bid = Bid {
            auction: 1,
            bidder: 2,
            price: u64::MAX,
            channel: "Apple".into(),
            url: "u".into(),
            date_time: i64::MIN,
            extra: String::new(),
        };
        let line = serde_json::to_string(&Event::Bid(bid.clone())).unwrap();
        assert_eq!(
            line,
            r#"{"kind":"bid","auction":1,"bidder":2,"price":18446744073709551615,"channel":"Apple","url":"u","date_time":-9223372036854775808,"extra":""}"#
        );
        assert_eq!(read(&line).unwrap(), Event::Bid(bid));
    }

    #[test]
    fn events_go_from_instance_to_instance_as_they_are() {
        let config = GeneratorConfig {
            events: 500,
            ..GeneratorConfig::default()
        };
        let events: Vec<Event> = Generator::new(config).unwrap().collect();
        let rows: Rows<Event> = (events.iter().cloned())
            .map(|e| (e, Timestamp::MIN))
            .collect();
        let codec = codec_of::<Event>().unwrap();
        let (mut from, mut to) = (Chunk::new(rows), Chunk::default());
        while !from.is_empty() {
            let mut payload = Vec::new();
            let records = codec.encode(&mut from, 10_000, &mut payload).unwrap();
            codec.decode(records, &payload, &mut to).unwrap();
        }
        assert_eq!(to.rows::<Event>().unwrap().values(), events);
    }

    #[test]
    fn the_kind_may_stand_anywhere_and_unknown_fields_are_passed_over() {
        let event =
            read(r#"{"id":3,"x":[1,{"y":null}],"date_time":-1,"name":null,"kind":"person"}"#)
                .unwrap();
        let Event::Person(person) = event else {
            panic!("not a person")
        };
        assert_eq!(
            (person.id, person.name.as_str(), person.date_time),
            (3, "", -1)
        );
    }

    #[test]
    fn an_auction_needs_its_numbers() {
        let whole = r#"{"kind":"auction","id":1,"initial_bid":1,"reserve":2,"date_time":0,"expires":5,"seller":3,"category":10}"#;
        assert!(matches!(
            read(whole),
            Ok(Event::Auction(Auction { expires: 5, .. }))
        ));
        let error = read(&whole.replace("\"seller\":3,", ""))
            .unwrap_err()
            .to_string();
        assert!(error.contains("seller"), "{error}");
    }

    #[test]
    fn negative_ids_fractions_and_unknown_kinds_are_errors() {
        assert!(read(r#"{"kind":"bid","auction":-1,"bidder":2,"price":3,"date_time":0}"#).is_err());
        assert!(
            read(r#"{"kind":"bid","auction":1,"bidder":2,"price":3.5,"date_time":0}"#).is_err()
        );
        for line in [
            r#"{"kind":"offer","auction":1}"#,
            r#"{"auction":1,"kind":"offer"}"#,
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains("offer") && error.contains("bid"), "{error}");
        }
        for line in ["{}", r#"{"auction":1}"#] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains("kind"), "{error}");
        }
    }
}
