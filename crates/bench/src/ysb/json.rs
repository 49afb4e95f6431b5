//! The events as JSON texts, generated ahead in memory, and their decoding.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use ardea_core::{Instance, Timestamp};
use serde::Deserialize;

use super::events::{ADS, AdEvents};
use crate::rows::EventRows;

/// The number of texts that an instance generates ahead. The events repeat after them.
pub(super) const CYCLE: u64 = 1 << 15;

/// The maximum length of a text.
const MOST_BYTES: usize = 272;

/// The number of digits of a time in milliseconds.
const TIME_DIGITS: usize = 13;

const AD_TYPES: [&str; 5] = ["banner", "modal", "sponsored-search", "mail", "mobile"];
const VIEW: &str = "view";
const EVENT_TYPES: [&str; 3] = [VIEW, "click", "purchase"];

/// An event as JSON text.
#[derive(Clone, Copy)]
pub(super) struct JsonAd {
    bytes: [u8; MOST_BYTES],
    length: u16,
    /// The offset of the time's digits.
    time_at: u16,
}

impl JsonAd {
    fn new(events: &AdEvents, index: u64) -> Self {
        let (event, random) = (events.event(index), events.random(index));
        let head = format!(
            "{{\"user_id\":\"{}\",\"page_id\":\"{}\",\"ad_id\":\"{}\",\"ad_type\":\"{}\",\
             \"event_type\":\"{}\",\"event_time\":\"",
            id(1, random >> 8),
            id(2, random >> 20),
            id(3, event.ad),
            AD_TYPES[(random % AD_TYPES.len() as u64) as usize],
            EVENT_TYPES[usize::from(event.kind) % EVENT_TYPES.len()],
        );
        let text = format!("{head}0000000000000\",\"ip_address\":\"1.2.3.4\"}}");
        let length = text.len().min(MOST_BYTES);
        let mut bytes = [b' '; MOST_BYTES];
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        JsonAd {
            bytes,
            length: length as u16,
            time_at: head.len() as u16,
        }
    }

    /// Sets the time.
    fn set_time(&mut self, digits: [u8; TIME_DIGITS]) {
        let at = usize::from(self.time_at);
        if let Some(place) = self.bytes.get_mut(at..at + TIME_DIGITS) {
            place.copy_from_slice(&digits);
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Returns the identifier of a thing of a kind, in the form of a UUID.
fn id(kind: u64, number: u64) -> String {
    let high = (number + (kind << 60)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let low = (high ^ (high >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// Returns the digits of a time in milliseconds.
fn digits(millis: i64) -> [u8; TIME_DIGITS] {
    let (mut left, mut digits) = (millis.unsigned_abs(), [b'0'; TIME_DIGITS]);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    digits
}

/// The events of an instance as JSON texts, of which each event has a copy with its own time.
#[derive(Clone)]
pub(super) struct JsonAds {
    events: AdEvents,
    /// Empty until the instance is known.
    texts: Arc<[JsonAd]>,
}

impl JsonAds {
    pub(super) fn new(campaigns: u64) -> Self {
        JsonAds {
            events: AdEvents::new(campaigns, Some(CYCLE)),
            texts: Arc::new([]),
        }
    }
}

impl EventRows for JsonAds {
    type Row = JsonAd;

    fn of_instance(&self, instance: Instance) -> Self {
        let events = self.events.of_instance(instance);
        JsonAds {
            texts: (0..CYCLE)
                .map(|index| JsonAd::new(&events, index))
                .collect(),
            events,
        }
    }

    fn fill(
        &self,
        run: Range<u64>,
        _: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<JsonAd>,
        times: &mut Vec<Timestamp>,
    ) {
        let (mut last, mut known) = (i64::MIN, [b'0'; TIME_DIGITS]);
        for index in run {
            let time = time(index);
            if time.as_millis() != last {
                last = time.as_millis();
                known = digits(last);
            }
            let mut event = self.texts[(index % CYCLE) as usize];
            event.set_time(known);
            rows.push(event);
            times.push(time);
        }
    }
}

/// The fields of an event that the job reads.
#[derive(Deserialize)]
struct EventFields<'a> {
    ad_id: &'a str,
    event_type: &'a str,
    event_time: &'a str,
}

/// A view of an advertisement of a campaign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AdView {
    pub(super) campaign: u64,
    pub(super) time: Timestamp,
}

/// The campaign of each advertisement.
pub(super) struct CampaignTable(HashMap<String, u64, foldhash::fast::FixedState>);

impl CampaignTable {
    pub(super) fn new(campaigns: u64) -> Self {
        CampaignTable(
            (0..campaigns * ADS)
                .map(|ad| (id(3, ad), ad / ADS))
                .collect(),
        )
    }

    /// Decodes an event. Returns `None` if it is no view, if its advertisement is unknown, or if it
    /// is malformed, which is counted as lost.
    pub(super) fn view(&self, text: &[u8]) -> Option<AdView> {
        let event: EventFields<'_> = serde_json::from_slice(text).ok()?;
        if event.event_type != VIEW {
            return None;
        }
        Some(AdView {
            campaign: *self.0.get(event.ad_id)?,
            time: Timestamp::from_millis(event.event_time.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_its_event_is_and_when_it_was() {
        let instance = Instance {
            index: 1,
            parallelism: 2,
        };
        let (texts, table) = (JsonAds::new(7).of_instance(instance), CampaignTable::new(7));
        let (mut rows, mut times) = (Vec::new(), Vec::new());
        let start = Timestamp::from_secs(1_700_000_000);
        let time = |index| start + std::time::Duration::from_micros(index * 700);
        let run = CYCLE - 100..CYCLE + 100;
        texts.fill(run.clone(), 0, time, &mut rows, &mut times);
        let mut views = 0;
        for ((index, row), at) in run.zip(&rows).zip(times) {
            assert_eq!(at, time(index));
            let event = texts.events.event(index);
            let json: serde_json::Value = serde_json::from_slice(row.as_bytes()).unwrap();
            let millis = at.as_millis();
            assert_eq!(json["event_time"], millis.to_string());
            let expected = (event.kind == 0).then_some(AdView {
                campaign: event.ad / ADS,
                time: Timestamp::from_millis(millis),
            });
            assert_eq!(table.view(row.as_bytes()), expected, "{json}");
            views += usize::from(expected.is_some());
        }
        assert!((40..100).contains(&views), "{views}");
    }

    #[test]
    fn every_text_fits() {
        let texts = JsonAds::new(10_000).of_instance(Instance::ONLY).texts;
        for text in &texts[..1_000] {
            assert!(serde_json::from_slice::<serde_json::Value>(text.as_bytes()).is_ok());
        }
        let longest = texts.iter().map(|text| text.as_bytes().len()).max();
        assert!(longest < Some(MOST_BYTES), "{longest:?}");
    }
}
