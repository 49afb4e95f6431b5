//! The queries that join events of different kinds.

use std::path::Path;
use std::sync::Arc;

use ardea_aggregate::{count, filtering, mapping, pick_any};
use ardea_connectors::collections;
use ardea_core::{Error, ErrorCode, FileUse, Result};
use ardea_pipeline::{Pipeline, Window};
use serde::{Deserialize, Serialize};

use super::QueryRun;
use super::bids::bids;
use crate::{Event, SIDE_KEYS};

#[derive(Serialize, Deserialize)]
pub(super) struct LocalItem {
    name: String,
    city: String,
    state: String,
    auction: u64,
}

/// The state of a person: registrations and auctions.
#[derive(Default, Serialize, Deserialize)]
struct Seller {
    persons: Vec<(String, String, String)>,
    auctions: Vec<u64>,
}

impl Seller {
    fn items(persons: &[(String, String, String)], auctions: &[u64]) -> Vec<LocalItem> {
        let pairs = persons
            .iter()
            .flat_map(|person| auctions.iter().map(move |auction| (person, *auction)));
        pairs
            .map(|((name, city, state), auction)| LocalItem {
                name: name.clone(),
                city: city.clone(),
                state: state.clone(),
                auction,
            })
            .collect()
    }
}

pub(super) fn q3(run: &QueryRun, p: &Pipeline) {
    run.events(p)
        .filter(|event| match event {
            Event::Person(person) => matches!(person.state.as_str(), "OR" | "ID" | "CA"),
            Event::Auction(auction) => auction.category == 10,
            Event::Bid(_) => false,
        })
        .key_by(person_of)
        .flat_map_stateful("sellers", Seller::default, |seller, _, event| match event {
            Event::Person(person) => {
                let person = (person.name, person.city, person.state);
                let items = Seller::items(std::slice::from_ref(&person), &seller.auctions);
                seller.persons.push(person);
                items
            }
            Event::Auction(auction) => {
                seller.auctions.push(auction.id);
                Seller::items(&seller.persons, &[auction.id])
            }
            Event::Bid(_) => Vec::new(),
        })
        .write_to(run.sink());
}

/// Returns the person of an event: the person registered, the seller, or the bidder.
fn person_of(event: &Event) -> u64 {
    match event {
        Event::Person(person) => person.id,
        Event::Auction(auction) => auction.seller,
        Event::Bid(bid) => bid.bidder,
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct NewSeller {
    window_start: i64,
    window_end: i64,
    id: u64,
    name: String,
}

pub(super) fn q8(run: &QueryRun, p: &Pipeline) {
    let name = |event: &Event| match event {
        Event::Person(person) => person.name.clone(),
        _ => String::new(),
    };
    let person = filtering(
        |event: &Event| matches!(event, Event::Person(_)),
        mapping(name, pick_any()),
    );
    let auctions = filtering(|event: &Event| matches!(event, Event::Auction(_)), count());
    run.events(p)
        .filter(|event| !matches!(event, Event::Bid(_)))
        .key_by(person_of)
        .window(Window::tumbling(run.window()))
        .aggregate("new sellers", (person, auctions))
        .filter_map(|window| match window.value {
            (Some(name), auctions) if auctions > 0 => Some(NewSeller {
                window_start: window.start.as_millis(),
                window_end: window.end.as_millis(),
                id: window.key,
                name,
            }),
            _ => None,
        })
        .write_to(run.sink());
}

#[derive(Serialize, Deserialize)]
pub(super) struct WithSide {
    auction: u64,
    bidder: u64,
    price: u64,
    date_time: i64,
    value: Arc<str>,
}

pub(super) fn q13(run: &QueryRun, p: &Pipeline) -> Result<()> {
    let (path, rows) = run.side()?;
    let rows = rows
        .into_iter()
        .map(|(key, value)| (key, Arc::<str>::from(value)));
    // Declares the table file as read, so that no output overwrites it; its rows are already in
    // memory.
    let files = vec![FileUse::Reads(path.to_path_buf())];
    let table = collections::items(rows).using_files(move |_| files.clone());
    let table = p.read_from(table);
    bids(run, p)
        .hash_join(
            "side",
            table,
            |bid| bid.auction % SIDE_KEYS,
            |(key, _)| *key,
            |bid, (_, value)| WithSide {
                auction: bid.auction,
                bidder: bid.bidder,
                price: bid.price,
                date_time: bid.date_time,
                value: Arc::clone(value),
            },
        )
        .write_to(run.sink());
    Ok(())
}

/// Reads the table of query 13: CSV of `key,value`. A first line whose key is not a number is the
/// header.
pub(super) fn read_side(path: &Path) -> Result<Vec<(u64, String)>> {
    let unreadable = |error: csv::Error| {
        Error::new(
            ErrorCode::ReadFailed,
            format!("cannot read the table {}", path.display()),
        )
        .because(error)
        .hint("it has to be CSV of key,value with whole numbers for keys")
    };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_path(path)
        .map_err(unreadable)?;
    let mut rows = Vec::new();
    for (number, record) in reader.records().enumerate() {
        let record = record.map_err(unreadable)?;
        let key = record.get(0).and_then(|key| key.trim().parse::<u64>().ok());
        match (key, record.get(1)) {
            (Some(key), Some(value)) => rows.push((key, value.to_string())),
            _ if number == 0 => {}
            _ => {
                let what = format!(
                    "line {} of the table {} is not key,value",
                    number + 1,
                    path.display()
                );
                return Err(Error::new(ErrorCode::BadRecord, what)
                    .hint("give each line a whole number and a value"));
            }
        }
    }
    Ok(rows)
}
