//! The check of settings by this program, which lacks the modules of a site's own programs.

use ardea::job::{check_forms, unknown_names};
use ardea_config::{Origin, Resolved};
use ardea_core::Error;
use ardea_rest::ClusterSettings;

use ardea::command_line::Context;
use ardea::console::{Failure, MessageKind, print_notice};

/// Refuses invalid settings. A module name that this program doesn't know is an error if it was
/// given to this command. An unknown name from a file or the environment is only a warning, since
/// other programs read these sources too.
pub fn check(
    resolved: &Resolved,
    cluster: &ClusterSettings,
    context: &Context,
) -> Result<(), Failure> {
    let modules = &context.modules;
    check_forms(resolved, cluster, modules)?;
    for (key, error) in unknown_names(resolved, modules) {
        let error = known_elsewhere(error);
        if resolved.origin(key) == Some(&Origin::Flag) {
            return Err(error.into());
        }
        let hint = error.hint_text().unwrap_or_default();
        let told = format!("{}; {hint}", error.message());
        print_notice(MessageKind::Warning, &told, context.json);
    }
    Ok(())
}

/// Adds a hint that another program may know the name.
fn known_elsewhere(error: Error) -> Error {
    let there_are = error.hint_text().unwrap_or_default();
    let hint = format!("{there_are}; a program's own modules are checked by `PROGRAM plan`");
    error.hint(hint)
}
