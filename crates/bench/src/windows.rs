//! Checkpoints of sliding windows: the format of the window operator, compared with one entry of
//! the state backend for each key and slice.

mod harness;
mod state_windows;

use std::sync::Arc;
use std::time::Duration;

use ardea::codec::state_codec_of;
use ardea::state::StateCodecs;
use ardea_aggregate::count;
use ardea_config::parse_count;
use ardea_core::{Error, ErrorCode, Result};
use ardea_operators::{FoldOne, SlidingWindowP, WindowSpec};
use serde_json::json;

use crate::bounds::refused;
use crate::noise;
use crate::report::{Field, Report, fields, machine, rounded, seconds};
use crate::usage::{Spent, Stopwatch, reset_peak};
use harness::WindowHarness;
use state_windows::StateWindowsP;

/// The slide of the windows.
const SLIDE: Duration = Duration::from_secs(1);
/// The number of slides in a window.
const SLIDES_PER_WINDOW: u32 = 10;

/// The parameters of `ardea bench windows`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct WindowsParams {
    /// Number of keys
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1_000_000")]
    pub keys: u64,
    /// Number of records per slide
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1_000_000")]
    pub records: u64,
    /// Number of measured slides, after the first window is full; each ends with a checkpoint
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub slides: u32,
}

impl WindowsParams {
    fn check(&self) -> Result<()> {
        match self.keys > 0 && self.records > 0 && self.slides > 0 {
            true => Ok(()),
            false => Err(refused("give at least one key, record and slide")),
        }
    }

    fn fields(&self) -> Vec<Field> {
        let window = SLIDE * SLIDES_PER_WINDOW;
        fields!(self; keys, records, slides, window = window, slide = SLIDE)
    }
}

/// Runs the benchmark; `progress` receives status texts.
///
/// An operator counts the records of each key in windows of ten seconds that slide by a second. It
/// is driven by hand, so that nothing else is measured. After each slide it emits the window, and
/// writes the changes since the last checkpoint.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; [`ErrorCode::Internal`] if the two
/// operators have different results.
pub fn run(params: &WindowsParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(1, Duration::from_secs(1))?;
    let all = Stopwatch::begin();
    progress("measuring the window operator");
    let blocks = WindowCosts::of(params, WindowHarness::new(Box::new(window_operator()?))?)?;
    progress("measuring the state backend");
    let entries = WindowCosts::of(params, WindowHarness::new(Box::new(StateWindowsP::new()))?)?;
    if (blocks.results, blocks.sum) != (entries.results, entries.sum) {
        let what = format!(
            "the window operator has {} results of {} records, the state backend {} of {}",
            blocks.results, blocks.sum, entries.results, entries.sum
        );
        return Err(Error::new(ErrorCode::Internal, what).hint("report this error"));
    }
    let mut figures = vec![
        ("duration_s", json!(seconds(all.spent().wall))),
        ("results", json!(blocks.results)),
    ];
    figures.extend(blocks.figures([
        "operator_records_per_cpu_s",
        "operator_slide_ms",
        "operator_checkpoint_ms",
        "operator_checkpoint_bytes",
        "operator_stored_bytes",
        "operator_store_ms",
    ]));
    figures.extend(entries.figures([
        "backend_records_per_cpu_s",
        "backend_slide_ms",
        "backend_checkpoint_ms",
        "backend_checkpoint_bytes",
        "backend_stored_bytes",
        "backend_store_ms",
    ]));
    figures.extend(machine(all.spent(), noise));
    Ok(Report {
        bench: "windows",
        parameters: params.fields(),
        figures,
    })
}

/// Returns the window operator, with the serializers that a pipeline gives it.
fn window_operator() -> Result<SlidingWindowP<impl ardea_operators::KeyedFold>> {
    let spec = WindowSpec::sliding(SLIDE * SLIDES_PER_WINDOW, SLIDE)?;
    let fold = FoldOne::new(|key: &u64| *key, count());
    let missing = || Error::new(ErrorCode::Internal, "a number has no serializer");
    let numbers = || state_codec_of::<u64>().ok_or_else(missing);
    let slices = StateCodecs::new(numbers()?, numbers()?);
    let triggers = StateCodecs::new(numbers()?, state_codec_of().ok_or_else(missing)?);
    Ok(SlidingWindowP::new(spec, Arc::new(fold)).with_codecs(slices, triggers))
}

/// The costs of an operator in the measured slides.
#[derive(Default)]
struct WindowCosts {
    slides: u32,
    records: u64,
    results: u64,
    /// The sum of all results.
    sum: u64,
    /// The cost of records, of closed windows, and of writing snapshots.
    adding: Duration,
    closing: Duration,
    writing: Duration,
    /// The cost of sorting and compressing the entries of snapshots.
    storing: Duration,
    written_bytes: u64,
    stored_bytes: u64,
}

impl WindowCosts {
    fn of(params: &WindowsParams, mut harness: WindowHarness) -> Result<WindowCosts> {
        let mut measured = WindowCosts::default();
        for slide in 0..SLIDES_PER_WINDOW + params.slides {
            if slide == SLIDES_PER_WINDOW {
                measured = WindowCosts::default();
            }
            measured.slides += 1;
            harness.slide(i64::from(slide), params, &mut measured)?;
        }
        Ok(measured)
    }

    fn figures(&self, names: [&'static str; 6]) -> Vec<Field> {
        let adding = Spent {
            cpu: self.adding,
            ..Spent::default()
        };
        let per_slide = |cpu: Duration| {
            json!(rounded(
                cpu.as_secs_f64() * 1e3 / f64::from(self.slides),
                1e3
            ))
        };
        let [records, slide, checkpoint, bytes, stored, store] = names;
        vec![
            (
                records,
                json!(adding.per_cpu_second(self.records).map(f64::round)),
            ),
            (slide, per_slide(self.closing)),
            (checkpoint, per_slide(self.writing)),
            (bytes, json!(self.written_bytes / u64::from(self.slides))),
            (stored, json!(self.stored_bytes / u64::from(self.slides))),
            (store, per_slide(self.storing)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_operators_have_the_same_results_and_write_checkpoints() {
        let params = WindowsParams {
            keys: 500,
            records: 2_000,
            slides: 3,
        };
        let report = run(&params, &mut |_| {}).unwrap();
        // Each key has a record in each window.
        assert_eq!(report.figure("results"), &json!(1_500), "{report:?}");
        for name in ["operator_checkpoint_bytes", "backend_checkpoint_bytes"] {
            assert!(report.figure(name).as_u64() > Some(500), "{report:?}");
        }
    }

    #[test]
    fn parameters_that_measure_nothing_are_refused() {
        let params = WindowsParams {
            slides: 0,
            ..WindowsParams::default()
        };
        let error = run(&params, &mut |_| {}).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
    }
}
