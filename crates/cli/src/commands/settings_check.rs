//! Settings as the stock program checks them: it doesn't know the parts that a program of a site's own brings along.

use ardea::cluster::Modules;
use ardea::job::{check_forms, unknown_names};
use ardea_config::{Origin, Resolved};
use ardea_core::Error;
use ardea_rest::ClusterSettings;

use crate::context::Context;
use crate::failure::{Failure, Notice, print_notice};

/// Refuses what can't be meant. A name that this program doesn't know is refused where it is given to this command; what a file or the
/// environment says is for other programs as well, so that one there is a warning.
pub fn check(
    resolved: &Resolved,
    cluster: &ClusterSettings,
    context: &Context,
) -> Result<(), Failure> {
    let modules = Modules::builtin();
    check_forms(resolved, cluster, &modules)?;
    for (key, error) in unknown_names(resolved, &modules) {
        let error = known_elsewhere(error);
        if resolved.origin(key) == Some(&Origin::Flag) {
            return Err(error.into());
        }
        let hint = error.what_next().unwrap_or_default();
        let told = format!("{}; {hint}", error.message());
        print_notice(Notice::Warning, &told, context.json);
    }
    Ok(())
}

/// With who may know the name.
fn known_elsewhere(error: Error) -> Error {
    let there_are = error.what_next().unwrap_or_default();
    let hint = format!("{there_are}; parts of a program's own are known to that: `PROGRAM plan`");
    error.hint(hint)
}
