//! A job whose output shows whether records were lost or counted twice: numbers, counted by key one
//! by one, into files that become visible when their epoch is committed.

use std::fs;
use std::path::{Path, PathBuf};

use ardea::core::{Error, ErrorCode, Parallelism, PartitionId};
use ardea::prelude::*;
use ardea_connectors::grid::{Change, ClusterMap, changes, lookup, put, update};
use serde::{Deserialize, Serialize};

/// The number of keys.
pub const KEYS: u64 = 23;

/// Returns true if this process should be the job `tally`.
pub fn is_asked_for() -> bool {
    std::env::args().any(|word| word == "tally")
}

fn wrong() -> Error {
    Error::new(ErrorCode::InvalidConfig, "tally FOLDER NUMBERS RATE")
}

/// The value of a key in the map `tally`.
#[derive(Clone, Serialize, Deserialize)]
struct Counted {
    parity: String,
    count: u64,
}

/// The value of a key in the map `followed`: the count in the change event, and the count that a
/// subsequent read returned.
#[derive(Clone, Serialize, Deserialize)]
struct Followed {
    told: u64,
    found: u64,
}

/// Builds another job, which writes each change of the map `tally`, with the value read after it,
/// to the map `followed`.
fn follower() -> ardea::Result<Pipeline> {
    let map = ClusterMap::<u64, Counted>::new("tally")?;
    let followed = ClusterMap::<u64, Followed>::new("followed")?;
    let told = |change: Change<u64, Counted>| match change {
        Change::Added(key, has) | Change::Updated(key, has) => (key, Some(has.count)),
        Change::Removed(key) => (key, None),
    };
    let p = Pipeline::new("follower");
    p.read_from(changes(&map))
        .map(told)
        .custom::<(u64, Option<Followed>), _>(
            "found",
            lookup(
                &map,
                |(key, _): &(u64, Option<u64>)| *key,
                |(key, told), found: Option<Counted>| {
                    let found = found.map_or(0, |found| found.count);
                    (key, told.map(|told| Followed { told, found }))
                },
            ),
        )
        .write_to(update(&followed, |entry: &(u64, Option<Followed>)| {
            entry.clone()
        }));
    Ok(p)
}

/// Builds the job `tally FOLDER NUMBERS RATE [HOW]`, which counts `NUMBERS` numbers, `RATE` per
/// second. Variants have other keys (`text`), fail with each record (`fails`), write to a map of
/// the cluster (`map`), follow that map (`follow`), have one instance of the source and several
/// exchanges (`hops`), or send the numbers of each source to one instance, and to the other one
/// once the file `shift` is in the folder (`shift`).
pub fn build(arguments: &[String]) -> ardea::Result<Pipeline> {
    let [_, folder, numbers, rate, how @ ..] = arguments else {
        return Err(wrong());
    };
    let how = how.first().map_or("", String::as_str);
    let numbers: u64 = numbers.parse().map_err(|_| wrong())?;
    let rate: u64 = rate.parse().map_err(|_| wrong())?;
    let p = Pipeline::new("tally");
    if how == "follow" {
        return follower();
    }
    let two = Parallelism::Exactly(std::num::NonZeroU32::MIN.saturating_add(1));
    let of_source = match how {
        "hops" => Parallelism::ONE,
        _ => two,
    };
    let source = generate::at_rate(rate, |number| number)
        .limit(numbers)
        .parallelism(of_source)
        .build();
    let sink = files::write_lines(Path::new(folder).join("tally.txt"))
        .rotate_with_epochs()
        .parallelism(two)
        .build();
    let fails = how == "fails";
    let numbers = p.read_from(source).named("numbers");
    if how == "map" {
        let map = ClusterMap::<u64, Counted>::new("tally")?;
        numbers
            .key_by(|number| number % KEYS)
            .rolling("counts", count())
            .parallelism(two)
            .write_to(put(&map, |(key, count): &(u64, u64)| {
                let parity = ["even", "odd"][(key % 2) as usize].to_string();
                let count = *count;
                (*key, Counted { parity, count })
            }));
        return Ok(p);
    }
    if how == "hops" {
        over_hops(numbers).write_to(sink);
        return Ok(p);
    }
    if how == "shift" {
        let shift = Path::new(folder).join("shift");
        let key = move |number: &u64| key_of((*number as u32 % 2) ^ u32::from(shift.exists()));
        let counts = numbers.key_by(key).rolling("counts", count());
        let counts = counts.parallelism(two);
        counts
            .map(|(key, count)| format!("{key} {count}"))
            .write_to(sink);
        return Ok(p);
    }
    if how == "text" {
        numbers
            .key_by(|number| (number % KEYS).to_string())
            .rolling("counts", count())
            .parallelism(two)
            .map(|(key, count)| format!("{key} {count}"))
            .write_to(sink);
        return Ok(p);
    }
    numbers
        .map(move |number| match fails {
            true => panic!("this version does not work"),
            false => number,
        })
        .key_by(|number| number % KEYS)
        .rolling("counts", count())
        .parallelism(two)
        .map(|(key, count)| format!("{key} {count}"))
        .write_to(sink);
    Ok(p)
}

/// Returns a key that the first or second of two instances counts.
fn key_of(instance: u32) -> u64 {
    let is_there = |key: &u64| PartitionId::of(key).owner(2) == instance;
    (0..KEYS).find(is_there).unwrap_or_default()
}

/// Counts the numbers by key, and the counts again in other instances. The sum of the first *n*
/// counts must be *n* (*n* + 1) / 2; otherwise the line has no key.
fn over_hops(numbers: Stream<u64, Bounded, Untimed>) -> Stream<String, Bounded, Untimed> {
    let three = Parallelism::Exactly(std::num::NonZeroU32::MIN.saturating_add(2));
    numbers
        .rebalance()
        .parallelism(three)
        .key_by(|number| number % KEYS)
        .rolling("counts", count())
        .parallelism(three)
        .key_by(|(key, _)| (key * 7) % KEYS)
        .rolling(
            "sums",
            (count(), sum(|(_, count): &(u64, u64)| *count as i64)),
        )
        .parallelism(three)
        .map(
            |(key, (count, sum))| match sum as u64 == count * (count + 1) / 2 {
                true => format!("{key} {count}"),
                false => format!("{key} 0"),
            },
        )
}

/// The folder of a job's output.
pub struct Tally(pub PathBuf);

impl Tally {
    /// Returns the lines published so far.
    pub fn lines(&self) -> Vec<(u64, u64)> {
        let mut lines = Vec::new();
        for file in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = file.path();
            if path.extension().is_some_and(|ending| ending == "txt") {
                let text = fs::read_to_string(path).unwrap_or_default();
                lines.extend(text.lines().filter_map(|line| {
                    let (key, count) = line.split_once(' ')?;
                    Some((key.parse().ok()?, count.parse().ok()?))
                }));
            }
        }
        lines.sort_unstable();
        lines
    }

    /// Checks that for each key every count up to some number was published exactly once; returns
    /// the number of lines.
    pub fn is_whole(&self) -> Result<usize, String> {
        let lines = self.lines();
        let mut next = [1; KEYS as usize];
        for (key, count) in &lines {
            let expected = &mut next[*key as usize];
            if count != expected {
                return Err(format!(
                    "of key {key} came {count} where {expected} was expected"
                ));
            }
            *expected += 1;
        }
        Ok(lines.len())
    }

    /// Returns the expected lines for `numbers` numbers: for each key, every count once.
    pub fn expected(numbers: u64) -> Vec<(u64, u64)> {
        let of_key = |key: u64| numbers / KEYS + u64::from(key < numbers % KEYS);
        let lines = (0..KEYS).flat_map(|key| (1..=of_key(key)).map(move |count| (key, count)));
        lines.collect()
    }
}
