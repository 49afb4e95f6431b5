//! The command line of a job: options with values, and positional arguments.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use ardea::config::{nearest, parse_count, parse_duration};
use ardea::core::{Bounded, ErrorCode, Source};
use ardea::prelude::{files, stdin};
use ardea::{Error, Result};
use serde::de::DeserializeOwned;

/// The arguments of a job that have not been read yet.
///
/// Options are `--name VALUE` or `--name=VALUE`. A job reads its options, then the positional
/// arguments; [`finish`](Self::finish) rejects the rest.
pub(crate) struct Arguments {
    job: &'static str,
    rest: Vec<String>,
    /// The options read so far, which are all options that the job has.
    known_options: Vec<String>,
}

impl Arguments {
    /// Creates the arguments of the job of this name. A `--`, which only separates the job's
    /// arguments from other options, is removed.
    pub(crate) fn new(job: &'static str, args: &[String]) -> Self {
        let mut rest = args.to_vec();
        if let Some(place) = rest.iter().position(|arg| arg == "--") {
            rest.remove(place);
        }
        Arguments {
            job,
            rest,
            known_options: Vec::new(),
        }
    }

    /// Reads the value of an option as text, if it is present.
    pub(crate) fn text(&mut self, option: &str) -> Result<Option<String>> {
        self.known_options.push(option.to_string());
        let with_value = format!("{option}=");
        let found = self.position(option);
        let Some(place) = found else { return Ok(None) };
        let arg = self.rest.remove(place);
        let value = match arg.strip_prefix(with_value.as_str()) {
            Some(value) => value.to_string(),
            None if place == self.rest.len() => {
                return Err(self.wrong(format!("{option} has no value")));
            }
            None => self.rest.remove(place),
        };
        match self.position(option) {
            Some(_) => Err(self.wrong(format!("{option} is given more than once"))),
            None => Ok(Some(value)),
        }
    }

    fn position(&self, option: &str) -> Option<usize> {
        self.rest
            .iter()
            .position(|arg| arg.split('=').next() == Some(option))
    }

    /// Rejects options that have no meaning here, with the reason.
    pub(crate) fn refuse(&mut self, options: &[&str], why: &str) -> Result<()> {
        match options
            .iter()
            .find(|option| self.position(option).is_some())
        {
            Some(option) => Err(self.wrong(format!("{option} means nothing here: {why}"))),
            None => Ok(()),
        }
    }

    /// Reads the value of an option with `parse`.
    pub(crate) fn parsed<T, E: Display>(
        &mut self,
        option: &str,
        parse: impl Fn(&str) -> std::result::Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(text) = self.text(option)? else {
            return Ok(None);
        };
        let value = parse(&text);
        value
            .map(Some)
            .map_err(|error| self.wrong(format!("{option} {text}: {error}")))
    }

    /// Reads a count of at least one.
    pub(crate) fn count(&mut self, option: &str, default: u64) -> Result<u64> {
        let parse = |text: &str| match parse_count(text) {
            Ok(0) | Err(_) => Err("not a whole number of at least 1"),
            Ok(count) => Ok(count),
        };
        Ok(self.parsed(option, parse)?.unwrap_or(default))
    }

    /// Reads a duration such as `500ms`, `10s` or `1h30m`, longer than zero.
    pub(crate) fn duration(&mut self, option: &str, default: Duration) -> Result<Duration> {
        let parse = |text: &str| match parse_duration(text) {
            Ok(Duration::ZERO) => Err("must be more than zero".to_string()),
            Ok(duration) => Ok(duration),
            Err(error) => Err(error.to_string()),
        };
        Ok(self.parsed(option, parse)?.unwrap_or(default))
    }

    /// Reads the next positional argument, if any.
    pub(crate) fn next_positional(&mut self) -> Option<String> {
        let is_option = |arg: &String| arg.starts_with('-') && arg != "-";
        let place = self.rest.iter().position(|arg| !is_option(arg))?;
        Some(self.rest.remove(place))
    }

    /// Reads the next positional argument as a file, which is required.
    pub(crate) fn file(&mut self) -> Result<String> {
        self.next_positional()
            .ok_or_else(|| self.wrong("no FILE given".to_string()))
    }

    /// Rejects arguments that have not been read.
    pub(crate) fn finish(self) -> Result<()> {
        let Some(arg) = self.rest.first() else {
            return Ok(());
        };
        let option = arg.split('=').next().unwrap_or_default();
        let known = self.known_options.iter().map(String::as_str);
        Err(
            match nearest(option, known).filter(|_| arg.starts_with('-')) {
                Some(meant) => self.wrong_with(
                    format!("{} has no option {option}", self.job),
                    &format!("did you mean {meant}? "),
                ),
                None => self.wrong(format!("unexpected argument {arg:?}")),
            },
        )
    }

    /// Returns an error about the command line.
    pub(crate) fn wrong(&self, what: String) -> Error {
        self.wrong_with(what, "")
    }

    fn wrong_with(&self, what: String, tip: &str) -> Error {
        Error::new(ErrorCode::InvalidConfig, what).hint(format!(
            "{tip}`ardea run {} --help` lists its arguments",
            self.job
        ))
    }
}

/// Parses the start position in a growing file, `start` or `end`; returns true for `end`.
pub(crate) fn from_end(text: &str) -> std::result::Result<bool, &'static str> {
    match text {
        "start" => Ok(false),
        "end" => Ok(true),
        _ => Err("give start or end"),
    }
}

/// Reads the JSON values of a file, one per line, or of standard input for `-`. Lines that are not
/// JSON become dead letters.
pub(crate) fn json_of<T: DeserializeOwned + Send + 'static>(file: &str) -> Source<T, Bounded> {
    if file == "-" {
        stdin::json_lines().build()
    } else {
        files::json_lines(Path::new(file)).build()
    }
}

/// Reads the lines of a file, or of standard input for `-`. Lines that are not UTF-8 become dead
/// letters.
pub(crate) fn lines_of(file: &str) -> Source<String, Bounded> {
    if file == "-" {
        stdin::lines().build()
    } else {
        files::lines(Path::new(file)).build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Arguments {
        let args: Vec<String> = line.split_whitespace().map(String::from).collect();
        Arguments::new("words", &args)
    }

    #[test]
    fn options_and_places_come_in_any_order() {
        for line in [
            "in.txt --top 5 --gap=2m",
            "--gap 2m in.txt --top=5",
            "--top 5 --gap 2m in.txt",
        ] {
            let mut args = arguments(line);
            assert_eq!(args.count("--top", 9).unwrap(), 5, "{line}");
            assert_eq!(
                args.duration("--gap", Duration::MAX).unwrap(),
                Duration::from_secs(120)
            );
            assert_eq!(args.file().unwrap(), "in.txt");
            args.finish().unwrap();
        }
    }

    #[test]
    fn what_says_that_the_rest_is_the_jobs_is_no_argument_itself() {
        for line in ["-- in.txt", "in.txt -- --top 5", "in.txt --top 5 --"] {
            let mut args = arguments(line);
            args.count("--top", 9).unwrap();
            assert_eq!(args.file().unwrap(), "in.txt", "{line}");
            args.finish().unwrap();
        }
    }

    #[test]
    fn what_is_not_there_has_its_default() {
        let mut args = arguments("-");
        assert_eq!(args.parsed("--from", from_end).unwrap(), None);
        assert_eq!(args.count("--top", 7).unwrap(), 7);
        assert_eq!(args.file().unwrap(), "-");
    }

    #[test]
    fn mistakes_say_where_help_is() {
        let says = |error: Error, what: &str| {
            let text = error.to_string();
            assert!(
                text.contains(what) && text.contains("ardea run words --help"),
                "{text}"
            );
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
        };
        says(
            arguments("--top").count("--top", 1).unwrap_err(),
            "--top has no value",
        );
        says(
            arguments("--top 0").count("--top", 1).unwrap_err(),
            "--top 0: not a whole number",
        );
        says(
            arguments("--gap 5")
                .duration("--gap", Duration::MAX)
                .unwrap_err(),
            "5 has no unit",
        );
        says(
            arguments("--other 5").finish().unwrap_err(),
            "unexpected argument \"--other\"",
        );
        says(
            arguments("--top 5 --top=6").count("--top", 1).unwrap_err(),
            "--top is given more than once",
        );
        let mut args = arguments("in --tpo=5");
        args.count("--top", 1).unwrap();
        args.file().unwrap();
        says(args.finish().unwrap_err(), "did you mean --top?");
        says(arguments("--top=3").file().unwrap_err(), "no FILE given");
    }
}
