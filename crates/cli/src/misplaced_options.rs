//! Handling of misplaced options, above all options of ardea after a job's name.
//!
//! Words after a job's name are the job's arguments, but users write `ardea run wordcount book.txt
//! --threads 2`. An option that ardea has and the job lacks is moved before the job's name.

use std::ffi::OsString;

use ardea_examples::{ExampleJob, jobs};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory};

use crate::args::{Args, Command, THREADS};

/// Returns the command line with misplaced options moved before the job's name, or `None` if there
/// are none. `given` is the command line that was parsed into `args`.
pub fn moved_in_front(given: &[OsString], args: &Args) -> Option<Vec<OsString>> {
    let (job, own) = match &args.command {
        Command::Run(args) => args.job.split(),
        Command::Plan(args) => args.job.split(),
        _ => return None,
    };
    let known = jobs().iter().find(|known| known.name == job);
    let usage = known.map_or("", |job| job.usage);
    let SplitArguments {
        moved,
        left,
        lacks_value,
    } = split_arguments(own, usage, options_of(&args.command));
    let start = given.len().checked_sub(own.len())?;
    if moved.is_empty()
        || given[start..]
            .iter()
            .zip(own)
            .any(|(given, own)| given != own.as_str())
    {
        return None;
    }
    let mut place = start.checked_sub(1)?;
    if place > 0 && given[place - 1] == "--" {
        place -= 1;
    }
    let mut line = given[..place].to_vec();
    line.extend(moved.into_iter().map(OsString::from));
    if lacks_value {
        // The next word must not become the value; the parser then reports the missing value.
        return Some(line);
    }
    line.extend_from_slice(&given[place..start]);
    line.extend(left.into_iter().map(OsString::from));
    Some(line)
}

/// Returns the job of a command line `ardea run --help JOB`, which clap takes for the help of
/// `run`.
pub fn help_of_a_job(given: &[OsString], error: &clap::Error) -> Option<&'static ExampleJob> {
    if error.kind() != ErrorKind::DisplayHelp {
        return None;
    }
    let command = given
        .iter()
        .position(|word| word == "run" || word == "plan")?;
    let asked = given
        .iter()
        .position(|word| word == "--help" || word == "-h")?;
    let name = given.get(asked + 1).filter(|_| asked == command + 1)?;
    jobs().iter().find(|job| name == job.name)
}

/// Adds a tip to the error if the unknown command is the name of a job.
pub fn with_tip(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && jobs().iter().any(|job| job.name == word)
    {
        let tip = format!("to run the job: ardea run {word}");
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
    error
}

/// The words after a job's name, split by owner.
struct SplitArguments {
    /// The options of ardea.
    moved: Vec<String>,
    /// The arguments of the job.
    left: Vec<String>,
    /// True if the last of ardea's options lacks its value.
    lacks_value: bool,
}

/// Splits the words after a job's name into options of ardea and arguments of the job.
fn split_arguments(arguments: &[String], usage: &str, own_command: &str) -> SplitArguments {
    let (mut ours, mut left) = (Vec::new(), Vec::new());
    let mut lacks_value = false;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            left.push(argument.clone());
            left.extend(arguments.cloned());
            break;
        }
        let (name, has_value) = match argument.split_once('=') {
            Some((name, _)) => (name, true),
            None => (argument.as_str(), false),
        };
        let known = takes_value(name, own_command).filter(|_| !is_in(usage, name));
        let target = if known.is_some() {
            &mut ours
        } else {
            &mut left
        };
        target.push(argument.clone());
        // The value of an option goes with it; all options of jobs have one.
        let value_follows = known.unwrap_or_else(|| name.starts_with("--"));
        if value_follows && !has_value {
            let value = arguments.next();
            lacks_value = value.is_none() && known.is_some();
            target.extend(value.cloned());
        }
    }
    SplitArguments {
        moved: ours,
        left,
        lacks_value,
    }
}

/// Returns the name of a command that runs or shows jobs.
fn options_of(command: &Command) -> &'static str {
    match command {
        Command::Plan(_) => "plan",
        _ => "run",
    }
}

/// Returns true if the option `name`, of ardea or of the command `own_command`, has a value as its
/// next word; `None` if there is no such option.
fn takes_value(name: &str, own_command: &str) -> Option<bool> {
    let is_named = |arg: &&Arg| match name.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => match name.as_bytes() {
            [b'-', letter] => arg.get_short() == Some(char::from(*letter)),
            _ => false,
        },
    };
    let all = Args::command();
    let own = all.find_subcommand(own_command);
    let of_jobs = own.into_iter().flat_map(clap::Command::get_arguments);
    let takes = all
        .get_arguments()
        .chain(of_jobs)
        .find(is_named)
        .map(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set());
    takes.or((name.strip_prefix("--") == Some(THREADS)).then_some(true))
}

/// Returns the long names of all options that may precede a job's name.
pub fn names() -> Vec<String> {
    let command = Args::command();
    let of_every_command = command.get_arguments().filter_map(Arg::get_long);
    let names = of_every_command.chain([THREADS]);
    names.map(|name| format!("--{name}")).collect()
}

/// Returns true if a job's usage mentions an option.
fn is_in(usage: &str, option: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '-';
    usage
        .split(|letter: char| !is_letter(letter))
        .any(|word| word == option)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Returns the command line as one text, with misplaced options moved.
    fn moved(line: &str) -> String {
        let given: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let args = Args::try_parse_from(&given).unwrap();
        let moved = moved_in_front(&given, &args).unwrap_or(given);
        Args::try_parse_from(&moved).unwrap();
        let words: Vec<String> = moved
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        words.join(" ")
    }

    #[test]
    fn options_of_ardea_are_moved_before_the_jobs_name() {
        for (given, expected) in [
            (
                "ardea run wordcount in --ui --quiet",
                "ardea run --ui --quiet wordcount in",
            ),
            (
                "ardea run wordcount --ui=127.0.0.1:8000 in",
                "ardea run --ui=127.0.0.1:8000 wordcount in",
            ),
            (
                "ardea run wordcount in --threads 2",
                "ardea run --threads 2 wordcount in",
            ),
            (
                "ardea run wordcount --threads=2 in",
                "ardea run --threads=2 wordcount in",
            ),
            (
                "ardea --json plan wordcount in -q",
                "ardea --json plan -q wordcount in",
            ),
            (
                "ardea run wordcount in --set slice=1ms --top 3",
                "ardea run --set slice=1ms wordcount in --top 3",
            ),
            (
                "ardea run no-such-job --json",
                "ardea run --json no-such-job",
            ),
            (
                "ardea plan wordcount in --dry-run --cluster prod",
                "ardea plan --dry-run --cluster prod wordcount in",
            ),
            (
                "ardea run -- wordcount in --json",
                "ardea run --json -- wordcount in",
            ),
        ] {
            assert_eq!(moved(given), expected);
        }
    }

    #[test]
    fn an_option_that_lacks_its_value_does_not_get_the_jobs_name_for_it() {
        let given: Vec<OsString> = ["ardea", "run", "wordcount", "in", "--set"]
            .map(OsString::from)
            .to_vec();
        let args = Args::try_parse_from(&given).unwrap();
        let error = Args::try_parse_from(moved_in_front(&given, &args).unwrap()).unwrap_err();
        assert!(
            error.to_string().contains("a value is required for '--set"),
            "{error}"
        );
    }

    #[test]
    fn what_is_the_jobs_own_stays_where_it_is() {
        for line in [
            "ardea run wordcount in --top 3",
            "ardea run wordcount --help",
            "ardea run tail log --match --json",
            "ardea run wordcount -- --json",
            "ardea examples --json",
        ] {
            assert_eq!(moved(line), line);
        }
    }
}
