//! A model of delays that one branch of a stream trains and another one uses.
//!
//! Flights depart again and again. One branch learns if they were late. Its model is a value in
//! keyed state, and therefore in checkpoints. Every few hundred flights it sends the model to all
//! instances of the other branch, which predicts the delay of each flight.
//!
//! The program `delay-model` is this job: `delay-model -- RATE`.

use std::sync::Arc;

use ardea::ml::{OnlineClassifier, StepSize};
use ardea::prelude::*;
use ardea_demo::{Data, Departure, Flight};
use serde::{Deserialize, Serialize};

/// A departure with a longer delay is late.
const LATE_MINUTES: i64 = 15;
/// The number of flights after which the model is sent to the other branch.
const FLIGHTS_PER_MODEL: u64 = 500;
/// The number of predictions in a line of the output.
const PREDICTIONS_PER_LINE: u64 = 20_000;

/// The features: the hour of the day, the carrier and the destination.
const HOURS: u32 = 24;
const CARRIERS: u32 = 64;
const DESTINATIONS: u32 = 256;
const FEATURES: u32 = HOURS + CARRIERS + DESTINATIONS;

/// The probability that a flight departs late, and the outcome.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Prediction {
    /// The probability by the model.
    pub probability: f64,
    /// True if the flight was late.
    pub is_late: bool,
    /// The number of flights that the model had learned.
    pub learned: u64,
}

impl Prediction {
    /// Returns the logistic loss of the prediction.
    pub fn loss(&self) -> f64 {
        let probability = match self.is_late {
            true => self.probability,
            false => 1.0 - self.probability,
        };
        -probability.max(1e-12).ln()
    }
}

/// Predicts delays with a model that is trained by the same flights.
pub fn predict<B: Boundedness, E: 'static>(
    departures: Stream<Departure, B, E>,
) -> Stream<Prediction, B, E> {
    let (learned, predicted) = departures.tee();
    let models = learned
        .key_by(|_| ())
        .map_stateful("learn", new_model, |model, (), departure| {
            let is_late = departure.delay > LATE_MINUTES;
            // The features are ascending.
            let _ = model.learn(&features(&departure), is_late);
            (model.examples() % FLIGHTS_PER_MODEL == 0).then(|| model.clone())
        })
        .filter_map(|model| model);
    predicted.with_broadcast(
        "predict",
        models,
        new_model,
        |model, newer| *model = newer,
        |departure, model| Prediction {
            probability: model.probability(&features(&departure)),
            is_late: departure.delay > LATE_MINUTES,
            learned: model.examples(),
        },
    )
}

fn new_model() -> OnlineClassifier {
    OnlineClassifier::new(FEATURES as usize, StepSize::Adaptive(0.1))
}

fn features(departure: &Departure) -> [(u32, f64); 3] {
    let hour = departure.hour.as_millis() / 3_600_000;
    let hour = u32::try_from(hour.rem_euclid(24)).unwrap_or(0);
    let carrier = HOURS + bucket(&departure.carrier, CARRIERS);
    let destination = HOURS + CARRIERS + bucket(&departure.dest, DESTINATIONS);
    [(hour, 1.0), (carrier, 1.0), (destination, 1.0)]
}

/// Returns the bucket of a code: its letters as a number, modulo the number of buckets.
fn bucket(code: &str, buckets: u32) -> u32 {
    let number = code.bytes().fold(0_u32, |number, byte| {
        number.wrapping_mul(31).wrapping_add(byte.into())
    });
    number % buckets
}

/// Returns flights in the order of their schedule, again and again, at a rate per second.
///
/// # Errors
/// The failure of reading the flights; `ErrorCode::ReadFailed` if there are none.
pub fn departures(data: &Data, rate: u64) -> Result<Source<Departure, Unbounded>> {
    let mut flights = Vec::new();
    for flight in data.rows::<Flight>("flights.csv.zst")? {
        if let Either::Left(departure) = flight?.departed_or_cancelled() {
            flights.push(departure);
        }
    }
    if flights.is_empty() {
        return Err(Error::new(ErrorCode::ReadFailed, "there are no flights"));
    }
    flights.sort_by_key(|departure| departure.hour);
    let flights: Arc<[Departure]> = flights.into();
    let count = flights.len() as u64;
    let flight = move |number: u64| flights[(number % count) as usize].clone();
    Ok(generate::at_rate(rate, flight).build().named("flights"))
}

/// Builds the job for the argument `RATE`, in flights per second. It prints the mean loss and the
/// accuracy of the latest predictions.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for other arguments.
pub fn build(arguments: &[String]) -> Result<Pipeline> {
    let rate = match arguments {
        [] => Some(50_000),
        [rate] => rate.parse().ok().filter(|rate| *rate > 0),
        _ => None,
    };
    let rate = rate.ok_or_else(|| {
        let what = "the argument must be a rate in flights per second";
        Error::new(ErrorCode::InvalidConfig, what).hint("write for example delay-model 50000")
    })?;
    let p = Pipeline::new("delay-model");
    predict(p.read_from(departures(&Data::embedded(), rate)?))
        .key_by(|_| ())
        .map_stateful(
            "score",
            || (0, 0.0, 0_u64),
            |score, (), prediction: Prediction| {
                let (count, loss, correct) = score;
                *count += 1;
                *loss += prediction.loss();
                *correct += u64::from((prediction.probability > 0.5) == prediction.is_late);
                if *count < PREDICTIONS_PER_LINE {
                    return None;
                }
                let all = *count as f64;
                let line = format!(
                    "{} flights learned: loss {:.4}, accuracy {:.3}",
                    prediction.learned,
                    *loss / all,
                    *correct as f64 / all
                );
                *score = (0, 0.0, 0);
                Some(line)
            },
        )
        .filter_map(|line| line)
        .write_to(stdout::lines());
    Ok(p)
}
