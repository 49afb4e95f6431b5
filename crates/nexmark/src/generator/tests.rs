//! Tests of the generator as a whole: proportions, purity, references, order.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::{Auction, Bid, Person};

fn config(events: u64) -> GeneratorConfig {
    GeneratorConfig {
        events,
        seed: 42,
        ..GeneratorConfig::default()
    }
}

fn generate(config: GeneratorConfig) -> Vec<Event> {
    Generator::new(config).unwrap().collect()
}

fn split(events: Vec<Event>) -> (Vec<Person>, Vec<Auction>, Vec<Bid>) {
    let (mut persons, mut auctions, mut bids) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Person(person) => persons.push(person),
            Event::Auction(auction) => auctions.push(auction),
            Event::Bid(bid) => bids.push(bid),
        }
    }
    (persons, auctions, bids)
}

#[test]
fn fifty_events_are_a_person_three_auctions_and_forty_six_bids() {
    let (persons, auctions, bids) = split(generate(config(5_000)));
    assert_eq!(
        (persons.len(), auctions.len(), bids.len()),
        (100, 300, 4_600)
    );
    assert!(persons.iter().map(|person| person.id).eq(1_000..1_100));
    assert!(auctions.iter().map(|auction| auction.id).eq(1_000..1_300));
}

#[test]
fn the_same_seed_gives_the_same_events_and_another_seed_others() {
    let first = generate(config(1_000));
    assert_eq!(first, generate(config(1_000)));
    assert_ne!(
        first,
        generate(GeneratorConfig {
            seed: 43,
            ..config(1_000)
        })
    );
}

#[test]
fn parts_put_together_are_the_whole() {
    let parts = [0..1, 1..377, 377..900, 900..5_000];
    let joined: Vec<Event> = parts
        .into_iter()
        .flat_map(|part| Generator::of_part(config(1_000), part).unwrap())
        .collect();
    assert_eq!(joined, generate(config(1_000)));
    assert_eq!(
        Generator::of_part(config(10), 20..30).unwrap().size_hint(),
        (0, Some(0))
    );
}

#[test]
fn half_of_the_bids_go_to_a_hot_auction_and_most_auctions_have_a_hot_seller() {
    let (_, auctions, bids) = split(generate(config(100_000)));
    let hot_bids =
        bids.iter().filter(|bid| bid.auction % 100 == 0).count() as f64 / bids.len() as f64;
    assert!((0.48..0.53).contains(&hot_bids), "{hot_bids}");
    let hot_bidders =
        bids.iter().filter(|bid| bid.bidder % 100 == 1).count() as f64 / bids.len() as f64;
    assert!((0.73..0.78).contains(&hot_bidders), "{hot_bidders}");
    let hot_sellers = auctions
        .iter()
        .filter(|auction| auction.seller % 100 == 0)
        .count() as f64;
    assert!(
        (0.72..0.79).contains(&(hot_sellers / auctions.len() as f64)),
        "{hot_sellers}"
    );
}

#[test]
fn every_query_finds_something_in_the_events() {
    let (persons, auctions, bids) = split(generate(config(100_000)));
    let by_id: HashMap<u64, &Auction> = auctions
        .iter()
        .map(|auction| (auction.id, auction))
        .collect();
    let in_time = |bid: &&Bid| {
        by_id
            .get(&bid.auction)
            .is_some_and(|auction| (auction.date_time..=auction.expires).contains(&bid.date_time))
    };
    let winning = bids.iter().filter(in_time).count();
    assert!(
        winning > bids.len() / 4 && winning < bids.len() * 9 / 10,
        "{winning} of {}",
        bids.len()
    );
    assert!(bids.iter().any(|bid| bid.auction % 123 == 0));
    for category in 10..15 {
        assert!(
            auctions
                .iter()
                .filter(|auction| auction.category == category)
                .count()
                > 1_000
        );
    }
    for state in ["OR", "ID", "CA", "WA"] {
        assert!(persons.iter().any(|person| person.state == state));
    }
    let ahead = bids
        .iter()
        .filter(|bid| {
            by_id
                .get(&bid.auction)
                .is_none_or(|a| a.date_time > bid.date_time)
        })
        .count();
    assert!(ahead > 0, "no bid names an auction that is still to come");
}

#[test]
fn events_have_about_the_size_asked_for() {
    let (persons, auctions, bids) = split(generate(config(50_000)));
    let average = |sizes: Vec<usize>| sizes.iter().sum::<usize>() / sizes.len();
    let text = |texts: &[&String]| texts.iter().map(|text| text.len()).sum::<usize>();
    let person = |p: &Person| {
        16 + text(&[
            &p.name,
            &p.email_address,
            &p.credit_card,
            &p.city,
            &p.state,
            &p.extra,
        ])
    };
    let auction = |a: &Auction| 56 + text(&[&a.item_name, &a.description, &a.extra]);
    assert!((190..=210).contains(&average(persons.iter().map(person).collect())));
    assert!((490..=510).contains(&average(auctions.iter().map(auction).collect())));
    assert!((95..=105).contains(&average(
        bids.iter().map(|bid| 32 + bid.extra.len()).collect()
    )));
    let unfilled = GeneratorConfig {
        person_bytes: 0,
        auction_bytes: 0,
        bid_bytes: 0,
        ..config(100)
    };
    assert!(
        split(generate(unfilled))
            .2
            .iter()
            .all(|bid| bid.extra.is_empty())
    );
}

#[test]
fn settings_outside_of_their_range_are_refused_by_name() {
    let refused = |config| match Generator::new(config) {
        Err(NexmarkError::Setting { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(GeneratorConfig {
            events_per_second: 0,
            ..config(1)
        }),
        "events_per_second"
    );
    assert_eq!(
        refused(GeneratorConfig {
            hot_bidder_ratio: 0,
            ..config(1)
        }),
        "hot_bidder_ratio"
    );
    assert_eq!(
        refused(GeneratorConfig {
            first_event_time_ms: i64::MAX,
            ..config(1)
        }),
        "first_event_time_ms"
    );
    assert_eq!(
        refused(GeneratorConfig {
            first_event_time_ms: i64::MIN,
            ..config(1)
        }),
        "first_event_time_ms"
    );
    assert_eq!(
        refused(GeneratorConfig {
            out_of_order: Duration::MAX,
            ..config(1)
        }),
        "out_of_order"
    );
}

#[test]
fn the_furthest_settings_allowed_generate_without_overflow() {
    let slow = GeneratorConfig {
        events_per_second: 1,
        in_flight_auctions: u64::MAX,
        first_event_time_ms: i64::MAX / 4 - 100_000,
        out_of_order: Duration::from_millis(i64::MAX as u64 / 4),
        ..config(100)
    };
    assert_eq!(generate(slow).len(), 100);
}

#[test]
fn lines_read_back_are_the_events_generated() {
    let mut lines = Vec::new();
    assert_eq!(write_jsonl(config(200), &mut lines).unwrap(), 200);
    let read: Vec<Event> = String::from_utf8(lines)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(read, generate(config(200)));
}

#[test]
fn a_full_disk_is_reported_with_the_line() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = write_jsonl(config(10_000), Full).unwrap_err();
    assert!(matches!(error, NexmarkError::Write { .. }), "{error}");
}

proptest! {
    #[test]
    fn shuffled_events_are_the_same_ones_and_none_is_later_than_the_bound(
        seed: u64,
        bound_ms in 1_u64..300,
        first_event_time_ms in -2_000_i64..2_000,
        events_per_second in 1_u64..20_000,
    ) {
        let in_order = GeneratorConfig { seed, first_event_time_ms, events_per_second, ..config(500) };
        let shuffled = GeneratorConfig { out_of_order: Duration::from_millis(bound_ms), ..in_order.clone() };
        let mut events = generate(shuffled.clone());
        prop_assert_eq!(&events, &generate(shuffled));
        let mut greatest_ms = i64::MIN;
        for event in &events {
            greatest_ms = greatest_ms.max(event.date_time());
            prop_assert!(greatest_ms - event.date_time() <= bound_ms as i64);
        }
        let key = |event: &Event| serde_json::to_string(event).unwrap();
        let mut expected = generate(in_order);
        events.sort_by_cached_key(key);
        expected.sort_by_cached_key(key);
        prop_assert_eq!(events, expected);
    }
}

#[test]
fn a_stream_out_of_order_is_out_of_order() {
    let events = generate(GeneratorConfig {
        out_of_order: Duration::from_millis(50),
        ..config(1_000)
    });
    let backwards = events
        .windows(2)
        .filter(|pair| pair[0].date_time() > pair[1].date_time())
        .count();
    assert!(backwards > 200, "{backwards}");
}
