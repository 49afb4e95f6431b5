//! `ardea logs`: the output of a job's processes, while it runs and for a time after its end.

use std::thread;
use std::time::Duration;

use ardea::command_line::ClusterConnection;
use ardea::command_line::Context;
use ardea::command_line::OfflineCluster;
use ardea::console::{Failure, print_error};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{LogLine, LogQuery, PastJobSummary};
use serde_json::json;

use crate::args::LogsArgs;

/// The delay before an interrupted stream of lines is requested again.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Prints the lines as they arrive, each with its origin unless all come from one file.
pub fn run(args: &LogsArgs, context: &Context) -> Result<(), Failure> {
    let query = LogQuery {
        container: args.container.map(ContainerId),
        source: args.source,
        tail: Some(args.tail),
        follow: args.follow,
        submission: args.submission.map(|submission| format!("{submission:x}")),
        ..LogQuery::default()
    };
    let cluster = match ClusterConnection::of(&args.job.place, context) {
        Ok(cluster) => cluster,
        Err(failure) => return print_stored(args, query, context, failure),
    };
    let job = &args.job.job;
    let mut lines = match cluster.wait_for(cluster.client.logs(job, &query)) {
        Err(failure) if is_without_hosts(&cluster, job, &failure) => {
            return print_stored(args, query, context, failure);
        }
        lines => lines?,
    };
    let mut is_broken = false;
    loop {
        match cluster.wait_for(lines.next()) {
            Ok(Some(line)) => {
                is_broken = false;
                print(&line, args, context)?;
            }
            Ok(None) => break,
            Err(Failure::Error(error)) if args.follow && is_transient(&error) => {
                if !is_broken {
                    warn_of_gap(&error, context);
                }
                is_broken = true;
                thread::sleep(RETRY_DELAY);
                let from_now = LogQuery {
                    tail: Some(0),
                    ..query.clone()
                };
                lines = cluster.wait_for(cluster.client.logs(job, &from_now))?;
            }
            Err(failure) => return Err(failure),
        }
    }
    // The lines shown so far may be final.
    if let Some(error) = ended(&cluster, job, query.submission.as_deref()) {
        print_status(&error.message(), context);
    }
    Ok(())
}

/// Returns the error that reports the end of the job, or of its submission `submission`; `None` if
/// that is not gone.
fn ended(cluster: &ClusterConnection, job: &str, submission: Option<&str>) -> Option<Error> {
    if let Some(submission) = submission {
        let past = cluster.wait_for(cluster.client.past(job)).ok()?;
        let mut past = past.iter().map(|past| &past.summary);
        let gone = past.find(|past| past.submission == submission);
        return gone.map(PastJobSummary::ended);
    }
    match cluster.wait_for(cluster.client.describe(job)) {
        Err(Failure::Error(error)) if error.code() == ErrorCode::NoSuchJob => Some(error),
        _ => None,
    }
}

/// Returns true if the error is transient: another host, or the same one later, may have more
/// lines.
fn is_transient(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::Network | ErrorCode::Superseded | ErrorCode::SchedulerUnavailable
    )
}

/// Prints that lines may be missing.
fn warn_of_gap(error: &Error, context: &Context) {
    if !context.quiet && !context.json {
        let what = error.message();
        print_error(&format!(
            "{what}: output written meanwhile is omitted; without --follow it is shown\n"
        ));
    }
}

/// Returns true if the failure means that this job has no hosts while those of other jobs are up.
fn is_without_hosts(cluster: &ClusterConnection, job: &str, failure: &Failure) -> bool {
    let is_away = matches!(failure, Failure::Error(error) if error.code() == ErrorCode::Network);
    let described = || cluster.wait_for(cluster.client.describe(job));
    is_away && described().is_ok_and(|job| job.master.is_none())
}

/// Prints the job's output on this machine while none of its hosts is up.
fn print_stored(
    args: &LogsArgs,
    query: LogQuery,
    context: &Context,
    failure: Failure,
) -> Result<(), Failure> {
    let (place, job) = (&args.job.place, &args.job.job);
    let remembered = OfflineCluster::after_failure(place, context, failure)?;
    let submission = query.submission.clone();
    let mut lines = remembered.wait_for(remembered.cluster.logs(job, query))?;
    while let Some(line) = remembered.wait_for(async { lines.recv().await.transpose() })? {
        print(&line, args, context)?;
    }
    let what = match remembered.absence_failure(job, submission.as_deref()) {
        Failure::Error(error) if error.code() == ErrorCode::NoSuchJob => error.message(),
        // The job may go on writing, which is not visible here.
        failure if args.follow => return Err(failure),
        Failure::Error(error) => format!("the hosts of {job} are gone ({})", error.message()),
        failure => return Err(failure),
    };
    let all = "this is its output on this machine";
    print_status(&format!("{what}: {all}"), context);
    Ok(())
}

fn print_status(what: &str, context: &Context) {
    if !context.quiet && !context.json {
        print_error(&format!("{what}\n"));
    }
}

fn print(line: &LogLine, args: &LogsArgs, context: &Context) -> Result<(), Failure> {
    let is_one_file = args.container.is_some() && args.source.is_some();
    context.print(&shown(line, is_one_file), || json!(line))
}

/// Formats a line with its origin. Pieces of a long line are joined if they come from one file;
/// otherwise a mark shows the continuation.
fn shown(line: &LogLine, is_one_file: bool) -> String {
    let LogLine {
        container,
        source,
        text,
        continues,
        ..
    } = line;
    match (is_one_file, continues) {
        (true, false) => format!("{text}\n"),
        (true, true) => text.clone(),
        (false, _) => {
            let goes_on = if *continues { "…" } else { "" };
            format!("{container} {}  {text}{goes_on}\n", source.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use ardea_rest::LogSource;

    use super::*;

    #[test]
    fn a_line_in_pieces_is_whole_in_one_file_and_has_a_sign_elsewhere() {
        let line = |text: &str, continues| LogLine {
            container: ContainerId(2),
            source: LogSource::Stdout,
            text: text.into(),
            continues,
            left_out_bytes: None,
        };
        let pieces = [line("abc", true), line("def", false)];
        let all = |is_one_file| pieces.iter().map(|line| shown(line, is_one_file)).collect();
        let (one, several): (String, String) = (all(true), all(false));
        assert_eq!(one, "abcdef\n");
        assert_eq!(several, "2 stdout  abc…\n2 stdout  def\n");
    }
}
