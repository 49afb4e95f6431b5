//! What a bench is told of what its jobs promise, and how it is compared with what they do without.

use ardea_bench::Report;
use ardea_core::{Guarantee, Result};

use super::{Repeat, pairs};
use crate::context::Context;
use crate::failure::Failure;

/// A guarantee, by its name.
pub fn guarantee(name: &str) -> std::result::Result<Guarantee, String> {
    let all = [
        Guarantee::None,
        Guarantee::AtLeastOnce,
        Guarantee::ExactlyOnce,
    ];
    let found = all.into_iter().find(|one| one.as_str() == name);
    found.ok_or_else(|| "give none, at-least-once or exactly-once".to_string())
}

/// Runs a bench in pairs: without the guarantee, and, as it is told, with it.
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
