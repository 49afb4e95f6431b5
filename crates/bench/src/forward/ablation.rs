//! The gain of each optimization of the forwarder: all on, each off alone, all off.
//!
//! After "Twitter Heron: Towards Extensible Streaming Engines", sections V and VI-B: its stream
//! manager uses memory pools, updates messages in place, and leaves tuples encoded.

use std::time::Duration;

use ardea_core::Result;
use serde_json::{Value, json};

use super::params::ForwardParams;
use super::run;
use crate::report::{Field, Report, rounded};

/// The optimizations that are on, and the figure of each variant.
const VARIANTS: [Variant; 5] = [
    Variant::new("all_on_tuples_per_cpu_s", true, true, true),
    Variant::new("no_in_place_tuples_per_cpu_s", false, true, true),
    Variant::new("no_pools_tuples_per_cpu_s", true, false, true),
    Variant::new("no_lazy_tuples_per_cpu_s", true, true, false),
    Variant::new("all_off_tuples_per_cpu_s", false, false, false),
];

struct Variant {
    figure: &'static str,
    in_place: bool,
    pools: bool,
    lazy: bool,
}

impl Variant {
    const fn new(figure: &'static str, in_place: bool, pools: bool, lazy: bool) -> Self {
        Variant {
            figure,
            in_place,
            pools,
            lazy,
        }
    }
}

/// Runs the benchmark once for each variant; the optimizations set in `params` are ignored.
/// `progress` receives status texts.
///
/// # Errors
/// As [`run`](super::run).
pub(super) fn ablation(params: &ForwardParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut reports = Vec::with_capacity(VARIANTS.len());
    for variant in &VARIANTS {
        let name = variant.figure.trim_end_matches("_tuples_per_cpu_s");
        let name = name.replace('_', " ");
        let params = ForwardParams {
            in_place: variant.in_place,
            pools: variant.pools,
            lazy: variant.lazy,
            ablation: false,
            ..*params
        };
        let report = run(&params, &mut |text| progress(&format!("{name}: {text}")))?;
        reports.push(report);
    }
    let of_each = |figure: &str| -> Vec<Option<f64>> {
        reports
            .iter()
            .map(|report| report.figure(figure).as_f64())
            .collect()
    };
    let per_cpu = of_each("tuples_per_cpu_s");
    let sum = |figure: &str| -> Option<f64> { of_each(figure).into_iter().sum() };
    let most =
        |figure: &str| -> Option<f64> { of_each(figure).into_iter().flatten().reduce(f64::max) };
    let told = |value: Option<f64>| json!(value.map(|value| rounded(value, 1e4)));
    let mut figures = vec![("duration_s", told(sum("duration_s")))];
    let each = VARIANTS.iter().zip(&per_cpu);
    figures.extend(each.map(|(variant, value)| (variant.figure, json!(value))));
    figures.extend(compared(&per_cpu, &of_each("tuples_per_s")));
    for name in ["cpu_seconds", "generator_cpu_seconds"] {
        figures.push((name, told(sum(name))));
    }
    for name in ["rss_mb", "noise_p9999_ms", "noise_max_ms"] {
        figures.push((name, told(most(name))));
    }
    Ok(Report {
        bench: "forward",
        parameters: parameters(params),
        figures,
    })
}

/// Returns the parameters, without the optimizations, and with `ablation` set.
fn parameters(params: &ForwardParams) -> Vec<Field> {
    let mut fields = params.fields();
    fields.retain(|(name, _)| !["in_place", "pools", "lazy"].contains(name));
    fields.push(("ablation", json!(true)));
    fields
}

/// Returns the share of each optimization in the total gain of CPU time a tuple, and the total
/// gain.
///
/// The shares need not add up. The remainder is `interplay_share`: gains that two optimizations
/// each yield alone, or only together.
fn compared(per_cpu: &[Option<f64>], per_second: &[Option<f64>]) -> Vec<Field> {
    let nothing = ("", Value::Null);
    let ratio = |of: &[Option<f64>]| {
        let (on, off) = (*of.first()?, *of.last()?);
        let ratio = on? / off?;
        ratio.is_finite().then(|| rounded(ratio, 1e3))
    };
    let shares = shares(per_cpu);
    let names = [
        "in_place_share",
        "pools_share",
        "lazy_share",
        "interplay_share",
    ];
    let mut fields = vec![nothing; names.len()];
    for (at, (field, name)) in fields.iter_mut().zip(names).enumerate() {
        let share = shares.map(|shares| rounded(shares[at], 1e3));
        *field = (name, json!(share));
    }
    fields.push(("all_on_ratio", json!(ratio(per_cpu))));
    fields.push(("throughput_ratio", json!(ratio(per_second))));
    fields
}

/// Returns the shares of the optimizations in the order of [`VARIANTS`], and the remainder. `None`
/// if all of them together gained nothing, or a figure is missing.
fn shares(per_cpu: &[Option<f64>]) -> Option<[f64; 4]> {
    let cost = |at: usize| {
        let per_cpu = (*per_cpu.get(at)?)?;
        (per_cpu > 0.0).then(|| Duration::from_secs(1).as_secs_f64() / per_cpu)
    };
    let (on, off) = (cost(0)?, cost(4)?);
    let gained = off - on;
    if gained <= 0.0 {
        return None;
    }
    let share = |at| Some((cost(at)? - on) / gained);
    let (in_place, pools, lazy) = (share(1)?, share(2)?, share(3)?);
    Some([in_place, pools, lazy, 1.0 - in_place - pools - lazy])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_of_the_cpu_time_that_all_savings_spare_a_tuple() {
        // 1, 2, 1.5, 5 and 9 seconds a tuple.
        let per_cpu = [1.0, 0.5, 1.0 / 1.5, 0.2, 1.0 / 9.0].map(Some);
        let [in_place, pools, lazy, interplay] = shares(&per_cpu).unwrap();
        let expected = [1.0 / 8.0, 0.5 / 8.0, 4.0 / 8.0, 2.5 / 8.0];
        for (share, expected) in [in_place, pools, lazy, interplay].iter().zip(expected) {
            assert!((share - expected).abs() < 1e-9, "{share} is not {expected}");
        }
        let told = compared(&per_cpu, &[Some(3.0), None, None, None, Some(1.5)]);
        assert_eq!(told[4], ("all_on_ratio", json!(9.0)));
        assert_eq!(told[5], ("throughput_ratio", json!(2.0)));
    }

    #[test]
    fn what_could_not_be_seen_has_no_share() {
        assert_eq!(
            shares(&[Some(1.0), Some(1.0), None, Some(1.0), Some(0.5)]),
            None
        );
        assert_eq!(shares(&[Some(1.0); 5]), None);
        let told = compared(&[None; 5], &[None; 5]);
        assert!(told.iter().all(|(_, value)| value.is_null()), "{told:?}");
    }

    #[test]
    fn a_short_ablation_measures_all_five() {
        let params = ForwardParams {
            bytes: 1_000,
            duration: Duration::from_millis(250),
            warmup: Duration::from_millis(10),
            ..ForwardParams::default()
        };
        let report = ablation(&params, &mut |_| {}).unwrap();
        for variant in &VARIANTS {
            assert!(report.figure(variant.figure).is_number(), "{report:?}");
        }
        assert_eq!(report.to_json()["ablation"], true);
        assert_eq!(report.to_json().get("lazy"), None);
    }
}
