//! `diff`: the comparison of a job's stored states with those of another program.

use std::path::Path;

use ardea_checkpoint::local::SavedStateSchema;
use ardea_checkpoint::savepoint::AllowedDrops;

use super::{ClusterArgs, ClusterConnection, Context, is_of_a_cluster};
use crate::console::Failure;
use crate::job::{Comparison, parse_states};

/// Returns the stored states of the job or savepoint `old`: in a folder, or on a cluster.
///
/// # Errors
/// Errors of the folder or of the cluster.
pub fn stored_states(
    old: &Path,
    place: &ClusterArgs,
    context: &Context,
) -> Result<SavedStateSchema, Failure> {
    if !is_of_a_cluster(place, old) {
        return Ok(SavedStateSchema::look(old)?);
    }
    let cluster = ClusterConnection::of_job_or_folder(place, old, context)?;
    let told = cluster.wait_for(cluster.client.states(&old.to_string_lossy()))?;
    Ok(parse_states(told)?)
}

/// Prints the comparison of stored states with new ones, each with its name.
///
/// # Errors
/// [`InvalidJob`](ardea_core::ErrorCode::InvalidJob) if a state can't be restored.
pub fn compare(
    old: (&Path, &SavedStateSchema),
    new: (&str, &SavedStateSchema),
    context: &Context,
) -> Result<(), Failure> {
    let dropping = AllowedDrops::listed(context.settings_of(None)?.text("recovery.drop")?);
    let place = old.0.display().to_string();
    let found = Comparison::of((&place, old.1), new, &dropping);
    context.print(&found, || found.to_json())?;
    Ok(found.check()?)
}
