//! The command line of a job program.

use std::path::PathBuf;

use ardea_config::{Flag, nearest};
use ardea_core::{Error, ErrorCode, Result};

/// The command of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    /// Run the job in this process.
    Run,
    /// Show the job's plan.
    Plan,
    /// Submit the job.
    Submit,
    /// Upgrade a job on a cluster to this program.
    Upgrade,
    /// Show the checkpoints in this folder.
    Checkpoints(PathBuf),
    /// Write a savepoint of the job in this folder.
    Savepoint(PathBuf),
    /// Show the savepoint in this folder.
    Inspect(PathBuf),
    /// Compare the job's state schema with the states in this folder.
    Diff(PathBuf),
    /// Print the job's state schema.
    States,
    /// Print the help.
    Help,
}

/// The parsed command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Arguments {
    pub(super) command: Command,
    pub(super) options: Options,
    /// The job's own arguments.
    pub(super) job_args: Vec<String>,
}

/// The options before the job's own arguments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Options {
    /// The settings from `--set`, `--cluster` and `--threads`, as given.
    pub(super) set: Vec<Flag>,
    pub(super) config: Option<PathBuf>,
    pub(super) name: Option<String>,
    pub(super) files: Vec<PathBuf>,
    pub(super) at: Option<String>,
    pub(super) to: Option<PathBuf>,
    pub(super) within: Option<String>,
    pub(super) detach: bool,
    pub(super) json: bool,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
    pub(super) progress: bool,
    pub(super) check: bool,
}

/// The options with a value, and the value's placeholder.
const WITH_VALUE: [(&str, &str); 9] = [
    ("--set", "KEY=VALUE"),
    ("--config", "FILE"),
    ("--threads", "N"),
    ("--cluster", "NAME"),
    ("--at", "URL"),
    ("--name", "NAME"),
    ("--file", "PATH"),
    ("--to", "FOLDER"),
    ("--within", "DURATION"),
];
const FLAGS: [&str; 7] = [
    "--detach",
    "--json",
    "--quiet",
    "--verbose",
    "--progress",
    "--check",
    "--help",
];

impl Arguments {
    /// Parses the words after the program's name. Without a command, all of them are the job's.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] for an unknown option or a missing value.
    pub(super) fn read(given: &[String]) -> Result<Self> {
        let command = match given.first().map(String::as_str) {
            Some("run") => Command::Run,
            Some("plan") => Command::Plan,
            Some("submit") => Command::Submit,
            Some("upgrade") => Command::Upgrade,
            Some("checkpoints") => Command::Checkpoints(PathBuf::new()),
            Some("savepoint") => Command::Savepoint(PathBuf::new()),
            Some("diff") => Command::Diff(PathBuf::new()),
            Some("states") => Command::States,
            Some("help" | "--help" | "-h") => Command::Help,
            _ => {
                return Ok(Arguments {
                    command: Command::Run,
                    options: Options::default(),
                    job_args: given.to_vec(),
                });
            }
        };
        let mut arguments = Arguments {
            command,
            options: Options::default(),
            job_args: Vec::new(),
        };
        let mut rest = given[1..].iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                arguments.job_args.extend(rest.cloned());
                break;
            }
            if !word.starts_with('-') || word == "-" {
                if let Command::Diff(old) = &mut arguments.command
                    && old.as_os_str().is_empty()
                {
                    *old = PathBuf::from(word);
                    continue;
                }
                arguments.job_args.push(word.clone());
                if let Command::Checkpoints(_) | Command::Savepoint(_) = arguments.command {
                    continue;
                }
                // The job's own arguments begin at the first word that is not an option.
                arguments.job_args.extend(rest.cloned());
                break;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (word.as_str(), None),
            };
            match WITH_VALUE.iter().find(|(known, _)| *known == name) {
                Some((_, what)) => {
                    let value = value.or_else(|| rest.next().cloned());
                    let lacking = || refuse(format!("{name} needs a value: {name} {what}"), None);
                    let value = value.ok_or_else(lacking)?;
                    arguments.options.take(name, value);
                }
                None if value.is_none() && FLAGS.contains(&name) => arguments.flag(name),
                None if word == "-q" => arguments.options.quiet = true,
                None if word == "-v" => arguments.options.verbose = true,
                None if word == "-h" => arguments.command = Command::Help,
                None => return Err(unknown(word)),
            }
        }
        arguments.take_folder()?;
        Ok(arguments)
    }

    /// Takes the folder argument of the commands that need one.
    fn take_folder(&mut self) -> Result<()> {
        let lacking = |what: &str| Err(refuse(what.to_string(), None));
        if let (Command::Savepoint(_), [word, folder]) = (&self.command, &self.job_args[..])
            && word == "inspect"
        {
            self.command = Command::Inspect(PathBuf::from(folder));
            return Ok(());
        }
        match &mut self.command {
            Command::Checkpoints(folder) => match &self.job_args[..] {
                [one] => *folder = PathBuf::from(one),
                _ => return lacking("checkpoints needs the folder of a job"),
            },
            Command::Savepoint(folder) => match &self.job_args[..] {
                [one] if one == "inspect" => {
                    return lacking("savepoint inspect needs the folder of a savepoint");
                }
                [one] => *folder = PathBuf::from(one),
                _ => return lacking("savepoint needs the folder of a job"),
            },
            Command::Diff(old) if old.as_os_str().is_empty() => {
                return lacking("diff needs the folder of a savepoint or of a job");
            }
            _ => {}
        }
        if let (Command::Savepoint(_), None) = (&self.command, &self.options.to) {
            return lacking("savepoint needs --to FOLDER");
        }
        match (&self.command, &self.options.name) {
            (Command::Upgrade, None) => lacking("upgrade needs the name of the job: --name JOB"),
            _ => Ok(()),
        }
    }

    fn flag(&mut self, name: &str) {
        match name {
            "--detach" => self.options.detach = true,
            "--json" => self.options.json = true,
            "--quiet" => self.options.quiet = true,
            "--verbose" => self.options.verbose = true,
            "--progress" => self.options.progress = true,
            "--check" => self.options.check = true,
            _ => self.command = Command::Help,
        }
    }
}

impl Options {
    fn take(&mut self, name: &str, value: String) {
        match name {
            "--set" => self.set.push(value.into()),
            "--threads" => {
                let text = format!("threads={value}");
                self.set.push(Flag::of_option("--threads", text));
            }
            "--cluster" => {
                let text = format!("cluster.name={value}");
                self.set.push(Flag::of_option("--cluster", text));
            }
            "--config" => self.config = Some(PathBuf::from(value)),
            "--at" => self.at = Some(value),
            "--name" => self.name = Some(value),
            "--to" => self.to = Some(PathBuf::from(value)),
            "--within" => self.within = Some(value),
            _ => self.files.push(PathBuf::from(value)),
        }
    }
}

fn unknown(word: &str) -> Error {
    let known = WITH_VALUE.iter().map(|(name, _)| *name);
    let near = nearest(word, known.chain(FLAGS));
    refuse(format!("there is no option {word}"), near)
}

fn refuse(what: String, near: Option<&str>) -> Error {
    let hint = match near {
        Some(near) => format!("did you mean {near}?"),
        None => "`help` lists the options; arguments of the job follow --".to_string(),
    };
    Error::new(ErrorCode::InvalidConfig, what).hint(hint)
}

/// Returns the text that `help` prints.
pub(super) fn help(program: &str) -> String {
    format!(
        "\
A job of Ardea. Words after the options are the job's own arguments; without a command, all words are.

Usage:
  {program} [ARGS]                   run it in this process; Ctrl-C drains it (with a guarantee: stops it with a checkpoint),
                                     a second one stops it at once
  {program} run [OPTIONS] [ARGS]     the same, with options
  {program} plan [OPTIONS] [ARGS]    show its graph, and how it would be packed; runs nothing
  {program} submit [OPTIONS] [ARGS]  submit it to a cluster
  {program} upgrade --name JOB [OPTIONS] [ARGS]
                                     upgrade a running job to this program, keeping its state; rolls back if this program
                                     fails to start
  {program} checkpoints FOLDER       show the checkpoints of a job (checkpoints.folder)
  {program} savepoint FOLDER --to F  write a savepoint of the job in that folder, whether it runs or not
  {program} savepoint inspect FOLDER show a savepoint
  {program} diff OLD [ARGS]          check whether this program can restore the states of a savepoint or of a job's folder
  {program} states [ARGS]            print the job's state schema, as JSON
  {program} help                     print this

Options:
  --set KEY=VALUE   change a setting; `ardea config` explains them
  --threads N       run: number of cooperative threads [default: all cores]
  --config FILE     read settings from this file only
  --cluster NAME    submit, plan: the cluster; its settings are in [clusters.NAME] of ardea.toml
  --at URL          submit: the address of the cluster's REST interface
  --name NAME       submit: name of the job on the cluster [default: the job's own]
  --within DURATION upgrade: time limit for the new program's first checkpoint [default: 1 min]
  --file PATH       submit: a file or folder to ship with the job; may be repeated
  --detach          submit, upgrade: don't wait until it runs
  --check           checkpoints, savepoint inspect: read and verify all data
  --to FOLDER       savepoint: destination folder; must be empty or not exist
  --json            print results, and the summary of a run, as JSON on standard output; errors and notices as
                    JSON on standard error
  -q, --quiet       print neither progress nor a summary
  -v, --verbose     run: list every step in the summary
  --progress        run: print progress every second where standard error is no terminal

Examples:
  {program} run --set guarantee=exactly-once --set checkpoints.folder=state/{program}
  {program} submit --cluster prod --name nightly
  {program} submit --file model.bin --set job.containers=4 -- --from yesterday
  {program} plan --set job.containers=2
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        Arguments::read(&words)
    }

    #[test]
    fn without_a_command_all_is_the_jobs() {
        for line in ["", "book.txt --top 3", "--json", "running"] {
            let arguments = read(line).unwrap();
            assert_eq!(arguments.command, Command::Run);
            assert_eq!(arguments.job_args.join(" "), line);
        }
    }

    #[test]
    fn options_stand_before_what_is_the_jobs() {
        let arguments = read(
            "submit --cluster prod --set=a=b --file x --file y --detach --name n in.txt --json",
        )
        .unwrap();
        let options = arguments.options;
        assert_eq!(arguments.command, Command::Submit);
        let cluster = Flag::of_option("--cluster", "cluster.name=prod");
        assert_eq!(options.set, [cluster, Flag::from("a=b")]);
        assert_eq!(options.files, [PathBuf::from("x"), PathBuf::from("y")]);
        assert_eq!(options.name.as_deref(), Some("n"));
        assert!(options.detach && !options.json);
        assert_eq!(arguments.job_args, ["in.txt", "--json"]);
        assert_eq!(
            read("run --json -- --detach").unwrap().job_args,
            ["--detach"]
        );
        assert_eq!(read("plan -").unwrap().job_args, ["-"]);
        let options = read("run -v --progress").unwrap().options;
        assert!(options.verbose && options.progress && !options.quiet);
    }

    #[test]
    fn a_wrong_option_is_refused_with_the_one_that_was_meant() {
        let error = read("submit --clutser prod").unwrap_err();
        assert_eq!(error.hint_text(), Some("did you mean --cluster?"));
        for line in ["submit --name", "plan --detach=yes", "run -x"] {
            assert_eq!(read(line).unwrap_err().code(), ErrorCode::InvalidConfig);
        }
        assert_eq!(read("submit --help").unwrap().command, Command::Help);
    }

    #[test]
    fn a_savepoint_is_of_one_folder_and_goes_to_another_and_a_comparison_takes_the_jobs_arguments()
    {
        let arguments = read("savepoint state/words --to saved").unwrap();
        assert_eq!(arguments.command, Command::Savepoint("state/words".into()));
        assert_eq!(arguments.options.to, Some("saved".into()));
        assert!(read("savepoint state/words").is_err() && read("savepoint --to x").is_err());
        let arguments = read("diff --json saved book.txt --top 3").unwrap();
        assert_eq!(arguments.command, Command::Diff("saved".into()));
        assert_eq!(arguments.job_args, ["book.txt", "--top", "3"]);
        assert!(arguments.options.json && read("diff").is_err());
        assert_eq!(read("states -- a").unwrap().job_args, ["a"]);
        let arguments = read("savepoint inspect saved --check").unwrap();
        assert_eq!(arguments.command, Command::Inspect("saved".into()));
        assert!(arguments.options.check);
        let error = read("savepoint inspect").unwrap_err();
        assert!(error.to_string().contains("savepoint inspect"), "{error}");
    }

    #[test]
    fn an_upgrade_is_of_a_job_that_is_named() {
        let arguments = read("upgrade --name words --within 5s book.txt").unwrap();
        assert_eq!(arguments.command, Command::Upgrade);
        assert_eq!(arguments.options.within.as_deref(), Some("5s"));
        assert_eq!(arguments.job_args, ["book.txt"]);
        assert!(read("upgrade book.txt").is_err());
    }

    #[test]
    fn checkpoints_are_those_of_one_folder() {
        let arguments = read("checkpoints state/words --check").unwrap();
        let folder = PathBuf::from("state/words");
        assert_eq!(arguments.command, Command::Checkpoints(folder));
        assert!(arguments.options.check);
        assert!(read("checkpoints").is_err() && read("checkpoints a b").is_err());
    }
}
