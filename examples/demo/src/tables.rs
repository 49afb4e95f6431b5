//! The results of the demo and their display: one table each, side by side on a terminal, or
//! printed at the end to a pipe.

use ardea::connect::live_table::{self, Row, Table};
use ardea::core::Bounded;
use ardea::prelude::*;

use super::HOUR;

/// Flights, their mean delay in minutes, and the largest delay.
pub type Delays = (u64, Option<f64>, Option<i64>);
/// A carrier's name and the delays of its flights in six hours.
pub type CarrierDelays = (String, WindowResult<String, Delays>);
/// Late flights of an airport without a longer gap between them: their number, and the largest
/// delay in minutes.
pub type Congestion = WindowResult<String, (u64, Option<i64>)>;
/// The flights of a day from an origin to a destination.
pub type RouteCount = WindowResult<(String, String), u64>;
/// The flights of a day in some circumstance, and the sum of their delays.
pub type DailyDelays = WindowResult<String, (u64, i128)>;

/// The results computed from the flights.
pub struct Analyses {
    /// The latest six hours of each carrier, every hour.
    pub carriers: Stream<CarrierDelays, Bounded, Timed>,
    /// Sessions of an airport in which flights were more than an hour late.
    pub congestion: Stream<Congestion, Bounded, Timed>,
    /// The flights so far and the sum of their delays, by weather and by manufacturer of the plane.
    pub circumstances: Stream<(String, (i128, i128)), Bounded, Timed>,
    /// The five busiest routes of each day.
    pub routes: Stream<WindowResult<(), Vec<RouteCount>>, Bounded, Timed>,
    /// The number of flights so far that were cancelled or arrived after their window, by reason.
    pub set_aside: Stream<(&'static str, u64), Bounded, Timed>,
}

pub(super) fn show(results: Analyses) {
    results.carriers.write_to(live_table::sink(
        "Departure delays, the latest six hours of each carrier",
        ["carrier", "flights", "mean min", "worst", "until (UTC)"],
        |(carrier, hours): &CarrierDelays| {
            let (flights, mean, worst) = hours.value;
            let mean = mean.unwrap_or_default();
            Row::new(carrier)
                .number(flights)
                .number(format!("{mean:.1}"))
                .number(worst.unwrap_or_default())
                .text(time(hours.end))
                // Carriers that fly now come before those whose last flights are long ago.
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
            |(place, day): &(usize, RouteCount)| {
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

fn time(at: Timestamp) -> String {
    utc(at, "%d %b %H:%M")
}

fn date(at: Timestamp) -> String {
    utc(at, "%d %b")
}

fn utc(at: Timestamp, format: &str) -> String {
    jiff::Timestamp::from_microsecond(at.as_micros()).map_or_else(
        |_| format!("{at:?}"),
        |time| time.strftime(format).to_string(),
    )
}
