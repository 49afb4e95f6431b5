//! `ardea completions`: a completion script for a shell.

use ardea::console::Failure;
use ardea_examples::jobs;
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Args;
use crate::stdout;

/// Prints the script that completes ardea's commands, options and jobs in `shell`.
pub fn run(shell: Shell) -> Result<(), Failure> {
    // Generated in memory, since clap_complete panics if its writer fails, as a closed pipe would.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "ardea", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Fish => script += &fish_jobs(),
        Shell::Zsh => script = zsh_jobs(&script),
        _ => {}
    }
    stdout::print(&script)
}

/// Returns the command line with the jobs as possible values of a job's name. This command line is
/// for completion only: the real argument also takes the job's own arguments.
fn command() -> Command {
    let mut command = Args::command();
    for name in ["run", "plan"] {
        command = command.mut_subcommand(name, |command| {
            command.mut_arg("job", |arg| {
                arg.value_parser(PossibleValuesParser::new(names()))
            })
        });
    }
    command
}

fn names() -> impl Iterator<Item = &'static str> {
    jobs().iter().map(|job| job.name)
}

/// Adds the values of positional arguments, which clap omits for fish. After a job's name, files
/// are offered.
fn fish_jobs() -> String {
    let mut lines = String::new();
    let all = names().collect::<Vec<_>>().join(" ");
    for command in ["run", "plan"] {
        for job in jobs() {
            let about = job.about.replace('\\', "\\\\").replace('\'', "\\'");
            lines += &format!(
                "complete -c ardea -n \"__fish_ardea_using_subcommand {command}; and not __fish_seen_subcommand_from {all}\" -f -a {} -d '{about}'\n",
                job.name
            );
        }
    }
    lines
}

/// Restricts the jobs to the first position, and offers files at the later ones: clap's script for
/// zsh offers the jobs everywhere.
fn zsh_jobs(script: &str) -> String {
    let mut lines = String::new();
    for line in script.lines() {
        if line.starts_with("'*::job ") {
            let all = names().collect::<Vec<_>>().join(" ");
            lines += &format!("'1:job:({all})' \\\n'*:argument:_files' \\\n");
        } else {
            lines += line;
            lines.push('\n');
        }
    }
    lines
}
