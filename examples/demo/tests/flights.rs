//! Tests that the demo over the whole year agrees with plain loops over the same files, read by
//! other code.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use ardea::{NodeConfig, Pipeline};
use ardea_demo::{Data, analyse};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

const HOUR: i64 = 3600;

/// A departure for the plain loops; times in seconds since 1970.
struct Departure {
    at: i64,
    delay: i64,
    /// The row of the file, by column name.
    row: HashMap<String, String>,
}

/// Reads a file of the data, row by row.
fn rows(name: &str) -> Vec<HashMap<String, String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name);
    let file = File::open(path).unwrap();
    let plain: Box<dyn Read> = match name.ends_with(".gz") {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(zstd::Decoder::new(file).unwrap()),
    };
    csv::Reader::from_reader(plain)
        .deserialize()
        .map(Result::unwrap)
        .collect()
}

/// Converts `2013-01-01T10:00:00Z` to seconds since 1970.
fn seconds(time_hour: &str) -> i64 {
    time_hour.parse::<jiff::Timestamp>().unwrap().as_second()
}

/// Returns the departures, and the number of flights cancelled with and without a plane.
fn departures() -> (Vec<Departure>, u64, u64) {
    let (mut departures, mut with_plane, mut without) = (Vec::new(), 0, 0);
    for row in rows("flights.csv.zst") {
        match row["dep_delay"].parse::<i64>() {
            Ok(delay) => {
                let minutes = row["minute"].parse::<i64>().unwrap() + delay;
                departures.push(Departure {
                    at: seconds(&row["time_hour"]) + 60 * minutes,
                    delay,
                    row,
                });
            }
            Err(_) if row["tailnum"] == "NA" => without += 1,
            Err(_) => with_plane += 1,
        }
    }
    (departures, with_plane, without)
}

/// Returns flights, sum of delays and largest delay by the window's start and the carrier.
fn carrier_windows(departures: &[Departure]) -> BTreeMap<(i64, String), (u64, i64, i64)> {
    let names: HashMap<String, String> = rows("airlines.csv.gz")
        .into_iter()
        .map(|row| (row["carrier"].clone(), row["name"].clone()))
        .collect();
    let mut windows = BTreeMap::new();
    for departure in departures {
        let hour = departure.at.div_euclid(HOUR) * HOUR;
        for back in 0..6 {
            let key = (hour - back * HOUR, names[&departure.row["carrier"]].clone());
            let (count, sum, worst) = windows.entry(key).or_insert((0, 0, i64::MIN));
            *count += 1;
            *sum += departure.delay;
            *worst = departure.delay.max(*worst);
        }
    }
    windows
}

/// Returns the sessions of each origin: start, end of the last flight's gap, number of flights and
/// largest delay.
fn sessions(departures: &[Departure]) -> Vec<(String, i64, i64, u64, i64)> {
    let mut sessions = Vec::new();
    for origin in ["EWR", "JFK", "LGA"] {
        let mut late: Vec<(i64, i64)> = departures
            .iter()
            .filter(|departure| departure.row["origin"] == origin && departure.delay > 60)
            .map(|departure| (departure.at, departure.delay))
            .collect();
        late.sort();
        let is_one = |a: &(i64, i64), b: &(i64, i64)| b.0 - a.0 < HOUR / 2;
        for session in late.chunk_by(is_one) {
            let (start, end) = (session[0].0, session[session.len() - 1].0 + HOUR / 2);
            let worst = session.iter().map(|(_, delay)| *delay).max().unwrap();
            sessions.push((origin.to_string(), start, end, session.len() as u64, worst));
        }
    }
    sessions.sort();
    sessions
}

/// Origin and destination.
type Route = (String, String);

/// Returns the five busiest routes of each day, which begins at 05:00 UTC.
fn top_routes(departures: &[Departure]) -> Vec<(i64, Vec<(Route, u64)>)> {
    let mut days: BTreeMap<i64, HashMap<Route, u64>> = BTreeMap::new();
    for departure in departures {
        let day = (departure.at - 5 * HOUR).div_euclid(24 * HOUR) * 24 * HOUR + 5 * HOUR;
        let route = (
            departure.row["origin"].clone(),
            departure.row["dest"].clone(),
        );
        *days.entry(day).or_default().entry(route).or_default() += 1;
    }
    let best = |routes: HashMap<Route, u64>| {
        let mut routes: Vec<_> = routes.into_iter().collect();
        routes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        routes.truncate(5);
        routes
    };
    days.into_iter()
        .map(|(day, routes)| (day, best(routes)))
        .collect()
}

/// Returns the weather class; `None` is a missing observation.
fn weather_class(row: Option<&HashMap<String, String>>) -> &'static str {
    let Some(row) = row else {
        return "weather unknown";
    };
    let number = |name: &str| row[name].parse::<f64>().ok();
    if number("visib").is_some_and(|miles| miles < 1.0) {
        "fog (sight under 1 mile)"
    } else if number("visib").is_some_and(|miles| miles < 5.0) {
        "mist (sight under 5 miles)"
    } else if number("wind_speed").is_some_and(|mph| mph >= 20.0) {
        "strong wind (over 20 mph)"
    } else if number("precip").is_some_and(|inches| inches >= 0.01) {
        "rain or snow"
    } else {
        "fair weather"
    }
}

/// Returns flights and the sum of their delays, by weather and by manufacturer of the plane.
fn circumstances(departures: &[Departure]) -> BTreeMap<String, (i128, i128)> {
    let weather: HashMap<Route, HashMap<String, String>> = rows("weather.csv.gz")
        .into_iter()
        .map(|row| ((row["origin"].clone(), row["time_hour"].clone()), row))
        .collect();
    let makers: HashMap<String, String> = rows("planes.csv.gz")
        .into_iter()
        .map(|row| (row["tailnum"].clone(), row["manufacturer"].clone()))
        .collect();
    let mut totals: BTreeMap<String, (i128, i128)> = BTreeMap::new();
    for Departure { row, delay, .. } in departures {
        let weather = weather.get(&(row["origin"].clone(), row["time_hour"].clone()));
        let maker = makers.get(&row["tailnum"]);
        let maker = maker.map_or("plane unknown", |name| name.split(' ').next().unwrap());
        for circumstance in [weather_class(weather), maker] {
            let (count, sum) = totals.entry(circumstance.to_string()).or_default();
            *count += 1;
            *sum += i128::from(*delay);
        }
    }
    totals
}

#[test]
fn a_year_of_flights_gives_what_plain_loops_give() {
    let p = Pipeline::new("flights");
    let data = Data::embedded();
    // No flight is a day late, so that with this lag none misses its windows.
    let found = analyse(&p, &data, f64::INFINITY, Duration::from_secs(24 * 3600));
    let carriers = found.carriers.collect();
    let congestion = found.congestion.collect();
    let circumstance_totals = found.circumstances.collect();
    let routes = found.routes.collect();
    let set_aside = found.set_aside.collect();
    p.run().unwrap();

    let (departures, with_plane, without) = departures();
    assert_eq!(departures.len() as u64 + with_plane + without, 336_776);

    let mut expected = carrier_windows(&departures);
    for (carrier, window) in carriers.take() {
        let start = window.start.as_millis() / 1000;
        assert_eq!(window.end.as_millis() / 1000 - start, 6 * HOUR);
        let (count, sum, worst) = expected.remove(&(start, carrier)).unwrap();
        assert_eq!(
            window.value,
            (count, Some(sum as f64 / count as f64), Some(worst))
        );
    }
    assert_eq!(expected, BTreeMap::new());

    let mut found: Vec<_> = congestion
        .take()
        .into_iter()
        .map(|session| {
            let (start, end) = (
                session.start.as_millis() / 1000,
                session.end.as_millis() / 1000,
            );
            (
                session.key,
                start,
                end,
                session.value.0,
                session.value.1.unwrap(),
            )
        })
        .collect();
    found.sort();
    assert_eq!(found, sessions(&departures));

    let mut found: Vec<_> = routes
        .take()
        .into_iter()
        .map(|day| {
            let best = day
                .value
                .into_iter()
                .map(|route| (route.key, route.value))
                .collect();
            (day.start.as_millis() / 1000, best)
        })
        .collect();
    found.sort();
    assert_eq!(found, top_routes(&departures));

    let totals: BTreeMap<_, _> = circumstance_totals.take().into_iter().collect();
    assert_eq!(totals, circumstances(&departures));

    let reasons: BTreeMap<_, _> = set_aside.take().into_iter().collect();
    let expected = [
        ("cancelled before a plane was assigned", without),
        ("cancelled, with a plane assigned", with_plane),
    ];
    assert_eq!(reasons, BTreeMap::from(expected));
}

#[test]
fn a_flight_too_late_for_its_session_is_told_and_the_others_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let flights = "\
carrier,tailnum,origin,dest,time_hour,minute,dep_delay
UA,N1,EWR,ORD,2013-01-01T10:00:00Z,30,0
UA,N1,EWR,ORD,2013-01-01T11:00:00Z,0,900
UA,NA,EWR,LAX,2013-01-01T12:00:00Z,0,NA
UA,N2,EWR,LAX,2013-01-01T13:00:00Z,0,75
";
    let files = [
        ("flights.csv.zst", flights),
        ("airlines.csv.gz", "carrier,name\nUA,United\n"),
        ("planes.csv.gz", "tailnum,manufacturer\nN1,BOEING\n"),
        (
            "weather.csv.gz",
            "origin,time_hour,wind_speed,precip,visib\n",
        ),
    ];
    for (name, text) in files {
        let file = File::create(directory.path().join(name)).unwrap();
        if name.ends_with(".gz") {
            GzEncoder::new(file, Compression::fast())
                .write_all(text.as_bytes())
                .unwrap();
        } else {
            zstd::stream::copy_encode(text.as_bytes(), file, 1).unwrap();
        }
    }
    let p = Pipeline::new("flights");
    let data = Data::in_directory(directory.path());
    let found = analyse(&p, &data, f64::INFINITY, Duration::from_secs(3600));
    let carriers = found.carriers.collect();
    let congestion = found.congestion.map(|session| session.value).collect();
    let circumstances = found.circumstances.collect();
    let routes = found.routes.map(|day| day.value.len()).collect();
    let set_aside = found.set_aside.collect();
    // With one record per chunk there is a watermark after each.
    p.run_with(NodeConfig {
        chunk_records: NonZeroUsize::MIN,
        ..NodeConfig::default()
    })
    .unwrap();

    let reasons = [
        ("cancelled before a plane was assigned", 1),
        ("too late to count as congestion", 1),
    ];
    assert_eq!(set_aside.take_sorted(), reasons);
    let counted: u64 = carriers
        .take()
        .iter()
        .map(|(_, window)| window.value.0)
        .sum();
    assert_eq!(counted, 2 * 6, "two flights in six windows each");
    // Windows of a day and sessions have other limits.
    assert_eq!(congestion.take_sorted(), [(1, Some(900))]);
    assert_eq!(routes.take_sorted(), [2]);
    let totals: BTreeMap<_, _> = circumstances.take().into_iter().collect();
    assert_eq!(totals["BOEING"], (2, 900));
    assert_eq!(totals["weather unknown"], (3, 975));
}
