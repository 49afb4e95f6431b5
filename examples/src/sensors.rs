//! Seventy channels of a drill, aggregated by channel and window, with early results.

use ardea::connect::format::{Csv, Decode};
use ardea::connect::live_table::{Row, Table};
use ardea::core::Boundedness;
use ardea::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::time_limit::with_time_limit;

const CHANNELS: u64 = 70;

/// A measurement of a channel.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Reading {
    /// The channel.
    pub channel: u32,
    /// The value.
    pub value: f64,
}

/// The number of readings, their mean, the minimum and the maximum.
pub type Summary = (u64, Option<f64>, Option<TotalF64>, Option<TotalF64>);
type Summaries<B> = Stream<WindowResult<u32, Summary>, B, Timed>;

/// Aggregates the readings of each channel in windows of `length`; `early` schedules the early
/// results of open windows.
pub fn summaries<B: Boundedness>(
    readings: Stream<Reading, B, Timed>,
    length: Duration,
    early: EarlyFiring,
) -> Summaries<B> {
    let value = |reading: &Reading| reading.value;
    let total = |reading: &Reading| TotalF64(reading.value);
    let summary = (count(), average(value), min(total), max(total));
    readings
        .key_by(|reading| reading.channel)
        .window(Window::tumbling(length))
        .early(early)
        .aggregate("summaries", summary)
}

fn show<B: Boundedness>(summaries: Summaries<B>) {
    let columns = ["channel", "readings", "mean", "least", "greatest", "window"];
    let table = Table::new("Channels, the least steady first", columns).rows(25);
    summaries.write_to(table.sink(|window: &WindowResult<u32, Summary>| {
        let (readings, mean, least, greatest) = window.value;
        let bound = |value: Option<TotalF64>| value.map_or(f64::NAN, f64::from);
        let is_early = window.firing == Firing::Early;
        let decimals = |value: f64| format!("{value:.2}");
        Row::new(window.key)
            .number(readings)
            .number(decimals(mean.unwrap_or(f64::NAN)))
            .number(decimals(bound(least)))
            .number(decimals(bound(greatest)))
            .text(if is_early { "open" } else { "closed" })
            .weight(bound(greatest) - bound(least))
    }));
}

/// The decoder of lines "CHANNEL VALUE". Rejects unknown channels and values that are not finite.
#[derive(Clone)]
struct ReadingDecoder(Csv);

impl ReadingDecoder {
    fn new() -> Self {
        ReadingDecoder(Csv::new().delimiter(b' ').without_header())
    }
}

impl Decode<Reading> for ReadingDecoder {
    fn begin(&mut self) {
        Decode::<Reading>::begin(&mut self.0);
    }

    fn decode(&mut self, frame: &[u8]) -> std::result::Result<Option<Reading>, String> {
        match self.0.decode(frame)? {
            Some(Reading { channel, .. }) if u64::from(channel) >= CHANNELS => Err(format!(
                "there is no channel {channel}: they go from 0 to {}",
                CHANNELS - 1
            )),
            Some(Reading { value, .. }) if !value.is_finite() => {
                Err(format!("{value} is not a finite number"))
            }
            reading => Ok(reading),
        }
    }
}

/// Returns reading number `i` of a drill that turns: each channel oscillates with its own period
/// and amplitude.
fn reading(i: u64) -> Reading {
    let channel = (i % CHANNELS) as u32;
    let turn = (i / CHANNELS) as f64 / f64::from(channel + 20);
    let value = 100.0 + f64::from(channel * 37 % 71) * turn.sin();
    Reading { channel, value }
}

/// Builds the job for these arguments; see the catalogue for their meaning.
pub(crate) fn build(args: &[String]) -> Result<Pipeline> {
    let mut args = Arguments::new("sensors", args);
    let length = args.duration("--window", Duration::from_secs(5))?;
    let early = EarlyFiring::every(args.duration("--early", Duration::from_millis(500))?)?;
    let listen = args.text("--listen")?;
    let p = Pipeline::new("sensors");
    if let Some(port) = listen {
        args.refuse(&["--rate", "--seconds"], "readings come from --listen")?;
        args.finish()?;
        let readings = p
            .read_from(
                tcp::listen(port)
                    .decode::<Reading, _>(ReadingDecoder::new())
                    .build(),
            )
            .with_arrival_timestamps(Duration::from_millis(100));
        show(summaries(readings, length, early));
    } else {
        let rate = args.count("--rate", 7_000)?;
        let seconds = args.count("--seconds", u64::MAX)?;
        args.finish()?;
        let source = generate::at_rate(rate, reading).limit(rate.saturating_mul(seconds));
        let source = with_time_limit(source.build(), Duration::from_secs(seconds));
        let readings = p.read_from(source).with_source_time();
        show(summaries(readings, length, early));
    }
    Ok(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_window_shows_what_it_has_and_a_closed_one_all() {
        let p = Pipeline::new("sensors");
        let readings = [(7, 1.5), (7, 2.5), (8, -3.0), (7, 5.0)];
        let readings = readings
            .map(|(channel, value)| Reading { channel, value })
            .to_vec();
        let readings = p
            .read_from(collections::items(readings))
            .with_timestamps(|_| Timestamp::from_secs(1), WatermarkPolicy::in_order());
        let early = EarlyFiring::each_records(2).unwrap();
        let out = summaries(readings, Duration::from_secs(5), early)
            .map(|w| {
                (
                    w.key,
                    w.firing,
                    w.value.0,
                    w.value.1,
                    w.value.2.map(|v| v.0),
                    w.value.3.map(|v| v.0),
                )
            })
            .collect();
        p.run().unwrap();
        let mut out = out.take();
        out.sort_by_key(|(channel, firing, ..)| (*channel, *firing));
        let expected = [
            (7, Firing::Early, 2, Some(2.0), Some(1.5), Some(2.5)),
            (7, Firing::OnTime, 3, Some(3.0), Some(1.5), Some(5.0)),
            (8, Firing::OnTime, 1, Some(-3.0), Some(-3.0), Some(-3.0)),
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn the_drill_has_seventy_channels() {
        let channels: std::collections::BTreeSet<u32> =
            (0..1_000).map(|i| reading(i).channel).collect();
        assert_eq!(channels.len() as u64, CHANNELS);
    }

    #[test]
    fn a_channel_that_there_is_not_and_a_value_that_is_none_are_bad_records() {
        let mut words = ReadingDecoder::new();
        let last = words.decode(b"69 -1.5").unwrap().unwrap();
        assert_eq!((last.channel, last.value), (69, -1.5));
        for line in ["70 1", "7 NaN", "7 inf", "7 -inf", "7", "seven 1"] {
            assert!(words.decode(line.as_bytes()).is_err(), "{line}");
        }
    }
}
