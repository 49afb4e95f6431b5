//! The guarantee option of benchmarks, and the comparison with runs without a guarantee.

use ardea_bench::Report;
use ardea_core::{Guarantee, Result};

use super::{Repeat, pairs};
use crate::context::Context;
use crate::failure::Failure;

/// Parses the name of a guarantee.
pub fn guarantee(name: &str) -> std::result::Result<Guarantee, String> {
    let all = [
        Guarantee::None,
        Guarantee::AtLeastOnce,
        Guarantee::ExactlyOnce,
    ];
    let found = all.into_iter().find(|one| one.as_str() == name);
    found.ok_or_else(|| "give none, at-least-once or exactly-once".to_string())
}

/// Runs a benchmark in pairs: first without the guarantee, then with it. The first argument of
/// `bench` is true for the run with it.
pub(super) fn both(
    guarantee: Guarantee,
    times: &Repeat,
    context: &Context,
    bench: impl FnMut(bool, &mut dyn FnMut(&str)) -> Result<Report>,
) -> std::result::Result<(), Failure> {
    if !guarantee.keeps_state() {
        return Err(Failure::usage(
            "--both compares runs with a guarantee with runs without",
            "add --guarantee exactly-once, or leave --both out",
        ));
    }
    pairs::run(times.repeat, context, bench)
}
