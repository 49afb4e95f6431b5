//! Delayed flights by the time zone of their destination: a topology with a custom grouping.
//!
//! Neither a hash nor round-robin brings the airports of a zone together; a function that looks up
//! the airport's zone does. So each instance ranks whole zones alone, and no merge is required.

use std::collections::HashMap;
use std::sync::Arc;

use ardea::Result;
use ardea::topology::*;
use ardea_demo::{Airport, Data, Flight, Rows};

/// The zones by their hours behind UTC, from five on; the last one is for all other destinations.
const ZONES: [&str; 5] = ["Eastern", "Central", "Mountain", "Pacific", "beyond"];

/// Emits the destination and the delay of each flight that left.
struct Flights(Rows<Flight>);

impl Spout for Flights {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["to", "minutes"])
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let Some(flight) = self.0.next().transpose()? else {
            return Ok(Next::Done);
        };
        if let Some(minutes) = flight.dep_delay {
            out.emit((flight.dest, minutes))?;
        }
        Ok(Next::More)
    }
}

/// Sums the delays of the zones received, and prints the airports with the largest mean delay,
/// among those with at least one flight a day.
struct Rank<Z, P>(HashMap<String, (i64, i64)>, Z, P);

impl<Z: Fn(&str) -> usize + Send, P: Fn(&str) + Send> Bolt for Rank<Z, P> {
    fn execute(&mut self, flight: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        let (sum, count) = self.0.entry(flight.str("to")?.into()).or_default();
        (*sum, *count) = (*sum + flight.int("minutes")?, *count + 1);
        Ok(())
    }

    fn finish(&mut self, _: &mut Collector<'_>) -> Outcome {
        let daily = self.0.iter().filter(|(_, (_, count))| *count >= 365);
        let means = daily.map(|(to, (sum, count))| (*sum as f64 / *count as f64, to));
        let mut ranking = means.collect::<Vec<_>>();
        ranking.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
        for (zone, name) in ZONES.iter().enumerate() {
            let here = ranking.iter().filter(|(_, to)| (self.1)(to) == zone);
            let worst = here
                .take(3)
                .map(|(mean, to)| format!("  {to} {mean:4.1} min"));
            let worst = worst.collect::<String>();
            if !worst.is_empty() {
                (self.2)(&format!("{name:8}{worst}"));
            }
        }
        Ok(())
    }
}

/// Returns the topology that prints, zone by zone, the destinations with the most delayed
/// departures from New York.
pub fn delays_by_zone(print: impl Fn(&str) + Clone + Send + Sync + 'static) -> Result<Topology> {
    let airports = Data::embedded().rows::<Airport>("airports.csv.gz")?;
    let hours = airports.map(|airport| airport.map(|airport| (airport.faa, airport.tz)));
    let hours: Arc<HashMap<_, _>> = Arc::new(hours.collect::<Result<_>>()?);
    let zone_of = move |airport: &str| match hours.get(airport) {
        Some(tz @ -8..=-5) => (-5 - tz) as usize,
        _ => ZONES.len() - 1,
    };
    let mut topology = TopologyBuilder::new("delays by zone");
    let flights = || Ok(Flights(Data::embedded().rows("flights.csv.zst")?));
    topology.try_spout("flights", 1, flights);
    let ranking = zone_of.clone();
    let rank = move || Rank(HashMap::new(), ranking.clone(), print.clone());
    let rank = topology.bolt("rank", ZONES.len() as u32, rank);
    // The grouping is any function of a tuple and the number of instances; results beyond the
    // number of instances wrap around.
    rank.custom("flights", move |flight, _| {
        zone_of(flight.str("to").unwrap_or("")) as u32
    });
    topology.build()
}
