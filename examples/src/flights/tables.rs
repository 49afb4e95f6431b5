//! What the demo finds out, and how it looks: one table for each, side by side on the terminal; printed at the end in a pipe.

use ardea::connect::live_table::{self, Row, Table};
use ardea::core::Bounded;
use ardea::prelude::*;

use super::HOUR;

/// Flights, their mean delay in minutes, and the worst.
pub type Delays = (u64, Option<f64>, Option<i64>);
/// A carrier's name, and its flights of six hours.
pub type OfCarrier = (String, WindowResult<String, Delays>);
/// Late flights of an airport without a longer pause between them: how many, and the worst delay in minutes.
pub type Congestion = WindowResult<String, (u64, Option<i64>)>;
/// The flights of a day from an origin to a destination.
pub type OnRoute = WindowResult<(String, String), u64>;
/// The flights of a day under some circumstance, and the sum of their delays.
pub type Day = WindowResult<String, (u64, i128)>;

/// What is computed of the flights.
pub struct Analyses {
    /// Each carrier's last six hours, every hour.
    pub carriers: Stream<OfCarrier, Bounded, Timed>,
    /// Sessions of an airport in which flights were more than an hour late.
    pub congestion: Stream<Congestion, Bounded, Timed>,
    /// The flights so far and the sum of their delays, by weather and by the maker of the plane.
    pub circumstances: Stream<(String, (i128, i128)), Bounded, Timed>,
    /// The five busiest routes of each day.
    pub routes: Stream<WindowResult<(), Vec<OnRoute>>, Bounded, Timed>,
    /// Flights that were cancelled, or left so late that their time was over, by reason: how many so far.
    pub set_aside: Stream<(&'static str, u64), Bounded, Timed>,
}

/// Writes each result to its table.
pub(super) fn show(results: Analyses) {
    results.carriers.write_to(live_table::sink(
        "Departure delays, the latest six hours of each carrier",
        ["carrier", "flights", "mean min", "worst", "until (UTC)"],
        |(carrier, hours): &OfCarrier| {
            let (flights, mean, worst) = hours.value;
            let mean = mean.unwrap_or_default();
            Row::new(carrier)
                .number(flights)
                .number(format!("{mean:.1}"))
                .number(worst.unwrap_or_default())
                .text(time(hours.end))
                // Carriers that fly now before those whose last flights are long ago.
                .weight(hours.end.as_millis() as f64 + mean)
        },
    ));
    results.congestion.write_to(
        Table::new(
            "Worst congestion, by flights over an hour late",
            ["since (UTC), airport", "minutes", "flights", "worst"],
        )
        .rows(8)
        .sink(|session: &Congestion| {
            let minutes = (session.end - HOUR / 2).since(session.start).as_secs() / 60;
            let (flights, worst) = session.value;
            Row::new(format!("{} {}", time(session.start), session.key))
                .number(minutes)
                .number(flights)
                .number(worst.unwrap_or_default())
                .weight(flights as f64)
        }),
    );
    results.circumstances.write_to(
        Table::new(
            "Delays this year by weather and plane",
            ["", "flights", "mean min"],
        )
        .rows(12)
        .sink(
            |(circumstance, (flights, minutes)): &(String, (i128, i128))| {
                let mean = *minutes as f64 / *flights as f64;
                Row::new(circumstance)
                    .number(flights)
                    .number(format!("{mean:.1}"))
                    .weight(*flights as f64)
            },
        ),
    );
    results
        .routes
        .flat_map(|day| day.value.into_iter().enumerate())
        .write_to(live_table::sink(
            "Busiest routes of the day",
            ["", "route", "flights", "day"],
            |(place, day): &(usize, OnRoute)| {
                let (from, to) = &day.key;
                Row::new(place + 1)
                    .text(format!("{from} → {to}"))
                    .number(day.value)
                    .text(date(day.start))
            },
        ));
    results.set_aside.write_to(live_table::sink(
        "Set aside",
        ["why", "flights"],
        |(reason, flights): &(&str, u64)| Row::new(reason).number(flights),
    ));
}

/// Day and minute, UTC.
fn time(at: Timestamp) -> String {
    utc(at, "%d %b %H:%M")
}

/// The day, UTC.
fn date(at: Timestamp) -> String {
    utc(at, "%d %b")
}

fn utc(at: Timestamp, format: &str) -> String {
    jiff::Timestamp::from_microsecond(at.as_micros()).map_or_else(
        |_| format!("{at:?}"),
        |time| time.strftime(format).to_string(),
    )
}
