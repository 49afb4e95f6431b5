//! The pipeline of the demo: from the data to all results.

use std::cmp::Reverse;

use ardea::prelude::*;

use super::tables::{Analyses, DailyDelays, RouteCount};
use super::{Airline, Data, Departure, Flight, HOUR, Plane, Weather};

/// Builds the pipeline. `speed` is the number of seconds of 2013 replayed per second. A flight's
/// event is late if it comes more than `lag` of event time behind the newest one. Days begin at
/// midnight of a New York winter, 05:00 UTC.
pub fn analyse(p: &Pipeline, data: &Data, speed: f64, lag: Duration) -> Analyses {
    let day = Window::tumbling(24 * HOUR).offset(5 * HOUR);
    let (departures, cancelled) = p
        .read_from(data.replayed("flights.csv.zst", Flight::scheduled, speed))
        .with_timestamps(Flight::happened, WatermarkPolicy::out_of_order(lag))
        .partition_map(Flight::departed_or_cancelled);
    let (for_carriers, departures) = departures.tee();
    let (for_congestion, departures) = departures.tee();
    let (for_weather, departures) = departures.tee();
    let (for_planes, for_routes) = departures.tee();

    let minutes = |departure: &Departure| departure.delay;
    let delays = (count(), average(minutes), max(minutes));
    let carriers = for_carriers
        .key_by(|departure| departure.carrier.clone())
        .window(Window::sliding(6 * HOUR, HOUR))
        .aggregate("delays by carrier", delays)
        .hash_join(
            "airlines",
            p.read_from(data.csv::<Airline>("airlines.csv.gz")),
            |window| window.key.clone(),
            |airline| airline.carrier.clone(),
            |window, airline| (airline.name.clone(), window.clone()),
        );

    let (congestion, late) = for_congestion
        .filter(|departure| departure.delay > 60)
        .key_by(|departure| departure.origin.clone())
        .window(Window::session(HOUR / 2))
        .aggregate_and_late("congestion", (count(), max(minutes)));

    let by_weather = for_weather.hash_join_outer(
        "weather",
        p.read_from(data.csv::<Weather>("weather.csv.gz")),
        Departure::place_and_hour,
        Weather::place_and_hour,
        |departure, weather| (Weather::class(weather).to_string(), departure.delay),
    );
    let by_plane = for_planes.hash_join_outer(
        "planes",
        p.read_from(data.csv::<Plane>("planes.csv.gz")),
        |departure| departure.tailnum.clone(),
        |plane| Some(plane.tailnum.clone()),
        |departure, plane| (Plane::maker(plane).to_string(), departure.delay),
    );
    let so_far = (
        sum(|day: &DailyDelays| day.value.0),
        sum(|day: &DailyDelays| day.value.1 as i64),
    );
    let circumstances = by_weather
        .merge(by_plane)
        .key_by(|(circumstance, _)| circumstance.clone())
        .window(day)
        .aggregate("delays of a day", (count(), sum(|d: &(String, i64)| d.1)))
        .key_by(|day| day.key.clone())
        .rolling("delays so far", so_far);

    let busiest = top_n(5, |w: &RouteCount| (w.value, Reverse(w.key.clone())));
    let routes = for_routes
        .key_by(Departure::route)
        .window(day)
        .aggregate("flights by route", count())
        .key_by(|_| ())
        .window(day)
        .aggregate("top routes", busiest);

    let set_aside = cancelled
        .merge(late.map(|_| "too late to count as congestion"))
        .key_by(|reason| *reason)
        .rolling("set aside", count());
    Analyses {
        carriers,
        congestion,
        circumstances,
        routes,
        set_aside,
    }
}
