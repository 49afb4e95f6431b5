//! `ardea logs`: what the processes of a job have written, or of one that has ended wrote as long as it was there.

use std::thread;
use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{LogLine, LogQuery, PastJobSummary};
use serde_json::json;

use crate::args::LogsArgs;
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::reach::Reached;
use crate::stdout;
use crate::unattended::Remembered;

/// How long to wait before lines that broke off are asked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Prints the lines as they come, each behind where it is from unless all are from one file.
pub fn run(args: &LogsArgs, context: &Context) -> Result<(), Failure> {
    let query = LogQuery {
        container: args.container.map(ContainerId),
        source: args.source,
        tail: Some(args.tail),
        follow: args.follow,
        submission: args.submission.map(|submission| format!("{submission:x}")),
        ..LogQuery::default()
    };
    let cluster = match Reached::of(&args.job.place, context) {
        Ok(cluster) => cluster,
        Err(failure) => return kept(args, query, context, failure),
    };
    let job = &args.job.job;
    let mut lines = match cluster.ask(cluster.client.logs(job, &query)) {
        Err(failure) if is_without_hosts(&cluster, job, &failure) => {
            return kept(args, query, context, failure);
        }
        lines => lines?,
    };
    let mut is_broken = false;
    loop {
        match cluster.ask(lines.next()) {
            Ok(Some(line)) => {
                is_broken = false;
                print(&line, args, context)?;
            }
            Ok(None) => break,
            Err(Failure::Error(error)) if args.follow && is_passing(&error) => {
                if !is_broken {
                    say_broken(&error, context);
                }
                is_broken = true;
                thread::sleep(AGAIN_AFTER);
                let from_now = LogQuery {
                    tail: Some(0),
                    ..query.clone()
                };
                lines = cluster.ask(cluster.client.logs(job, &from_now))?;
            }
            Err(failure) => return Err(failure),
        }
    }
    // What is shown may be all that there will ever be.
    if let Some(error) = ended(&cluster, job, query.submission.as_deref()) {
        say(&error.message(), context);
    }
    Ok(())
}

/// That the job, or that submission of it, is gone.
fn ended(cluster: &Reached, job: &str, submission: Option<&str>) -> Option<Error> {
    if let Some(submission) = submission {
        let past = cluster.ask(cluster.client.past(job)).ok()?;
        let mut past = past.iter().map(|past| &past.summary);
        let gone = past.find(|past| past.submission == submission);
        return gone.map(PastJobSummary::ended);
    }
    match cluster.ask(cluster.client.describe(job)) {
        Err(Failure::Error(error)) if error.code() == ErrorCode::NoSuchJob => Some(error),
        _ => None,
    }
}

/// Whether another host, or the same one later, has more lines.
fn is_passing(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::Network | ErrorCode::Superseded | ErrorCode::SchedulerUnavailable
    )
}

/// Says that lines may be missing.
fn say_broken(error: &Error, context: &Context) {
    if !context.quiet && !context.json {
        let what = error.message();
        print_error(&format!(
            "{what}: what was written meanwhile is left out; without --follow it is shown\n"
        ));
    }
}

/// Whether that is why there is nothing: other jobs have hosts, and this one has none.
fn is_without_hosts(cluster: &Reached, job: &str, failure: &Failure) -> bool {
    let is_away = matches!(failure, Failure::Error(error) if error.code() == ErrorCode::Network);
    let described = || cluster.ask(cluster.client.describe(job));
    is_away && described().is_ok_and(|job| job.master.is_none())
}

/// Prints what this machine has of what a job has written, where no host of it is up.
fn kept(
    args: &LogsArgs,
    query: LogQuery,
    context: &Context,
    failure: Failure,
) -> Result<(), Failure> {
    let (place, job) = (&args.job.place, &args.job.job);
    let remembered = Remembered::instead(place, context, failure)?;
    let submission = query.submission.clone();
    let mut lines = remembered.ask(remembered.cluster.logs(job, query))?;
    while let Some(line) = remembered.ask(async { lines.recv().await.transpose() })? {
        print(&line, args, context)?;
    }
    let what = match remembered.why_not(job, submission.as_deref()) {
        Failure::Error(error) if error.code() == ErrorCode::NoSuchJob => error.message(),
        // It may go on writing, which is not to be seen here.
        failure if args.follow => return Err(failure),
        Failure::Error(error) => format!("the hosts of {job} are gone ({})", error.message()),
        failure => return Err(failure),
    };
    let all = "this is what is on this machine of what it has written";
    say(&format!("{what}: {all}"), context);
    Ok(())
}

fn say(what: &str, context: &Context) {
    if !context.quiet && !context.json {
        print_error(&format!("{what}\n"));
    }
}

fn print(line: &LogLine, args: &LogsArgs, context: &Context) -> Result<(), Failure> {
    let is_one_file = args.container.is_some() && args.source.is_some();
    match context.json {
        true => stdout::print_json(&json!(line)),
        false => stdout::print(&shown(line, is_one_file)),
    }
}

/// A line longer than a piece is whole again where nothing comes between; elsewhere a sign says that it goes on.
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
