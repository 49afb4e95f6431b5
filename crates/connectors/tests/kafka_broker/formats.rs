//! Tests of formats that decode values, into rows and batches.

use ardea_connectors::format::{BatchDecode, Decode, JsonLines};
use ardea_connectors::kafka::read;
use ardea_core::{Result, Rows, Timestamp};
use ardea_pipeline::Pipeline;
use serde::Deserialize;

use super::environment::{Running, Topic, eventually};

#[derive(Deserialize)]
struct Event<'a> {
    kind: &'a str,
    auction: Option<u64>,
}

/// Events of three kinds: bids, others, and values that are no events.
fn events() -> impl Iterator<Item = (i32, i64, String)> {
    (0..300i64).map(|n| {
        let text = match n % 3 {
            0 => format!(r#"{{"kind":"bid","auction":{n},"url":"/"}}"#),
            1 => r#"{"kind":"person"}"#.to_string(),
            _ => format!("no event {n}"),
        };
        ((n % 2) as i32, n + 1, text)
    })
}

#[test]
fn a_format_borrows_from_the_message_and_drops_or_refuses_records() {
    let Some(topic) = Topic::new(2) else { return };
    topic.fill(events());
    let bids = JsonLines.decode_with(|value| {
        let event: Event<'_> = value.read()?;
        Ok(event.auction.filter(|_| event.kind == "bid"))
    });
    let p = Pipeline::new("bids");
    let source = read(&topic.brokers, &topic.name).format(bids);
    let auctions = p.read_from(source.until_present().build()).collect();
    let running = Running::start(&p);
    eventually("it ends", || running.job.status().is_over());
    assert!(auctions.take_sorted().into_iter().eq((0..300).step_by(3)));
    let letters = running.job.dead_letters();
    assert_eq!(letters.count(), 100);
    let letter = &letters.sample()[0];
    assert!(
        letter.origin.starts_with(&format!("{}[", topic.name)),
        "{letter:?}"
    );
    assert!(letter.raw.starts_with(b"no event"), "{letter:?}");
}

/// A decoder of numbers into batches of rows.
#[derive(Clone, Default)]
struct Numbers(Vec<u64>);

impl Decode<()> for Numbers {
    fn decode(&mut self, frame: &[u8]) -> std::result::Result<Option<()>, String> {
        let text = std::str::from_utf8(frame).map_err(|error| error.to_string())?;
        let number = text.parse::<u64>().map_err(|error| error.to_string())?;
        self.0.push(number);
        Ok(Some(()))
    }
}

impl BatchDecode for Numbers {
    type Batch = Rows<u64>;

    fn batch_rows(&self) -> usize {
        7
    }

    fn take_batch(&mut self) -> Result<Option<Rows<u64>>> {
        let times = vec![Timestamp::MIN; self.0.len()];
        self.take_timed_batch(&times)
    }

    fn take_timed_batch(&mut self, times: &[Timestamp]) -> Result<Option<Rows<u64>>> {
        assert_eq!(self.0.len(), times.len());
        let rows: Rows<u64> = self.0.drain(..).zip(times.iter().copied()).collect();
        Ok((!rows.is_empty()).then_some(rows))
    }
}

#[test]
fn batches_have_the_times_of_their_messages() {
    let Some(topic) = Topic::new(2) else { return };
    topic.fill((0..100).map(|n| ((n % 2) as i32, n + 1, n.to_string())));
    topic.fill([(0, 200, "bad".to_string())]);
    let p = Pipeline::new("batches");
    let source = read(&topic.brokers, &topic.name).format::<(), _>(Numbers::default());
    let numbers = p
        .read_from(source.until_present().build_batches::<u64>())
        .with_source_time()
        .map_timed(|number, time| (number, time))
        .collect();
    p.run().expect("read");
    let expected = (0..100u64).map(|n| (n, Timestamp::from_secs(n as i64 + 1)));
    assert!(numbers.take_sorted().into_iter().eq(expected));
}
